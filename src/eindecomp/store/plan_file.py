"""Plans as JSON files.

A file holds the graph as text, the mesh, what was asked for, and for every vertex which axes cut
which label and where what it sums over devices ends. All else is made again from that when it is
read, the cost included, which must be the one that the file states. Only the proved bound, the
limit on memory, the contraction orders that were considered and how the plan was found are taken at
their word.
"""

from __future__ import annotations

from dataclasses import replace
from math import isclose, isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from eindecomp.errors import EinDecompError, PlanError
from eindecomp.graph.checks import as_written
from eindecomp.graph.text.elaborate import parse
from eindecomp.lang.text.resolve import MAX_TEXT
from eindecomp.layout.mesh import PIECES, Mesh
from eindecomp.layout.view import view_of
from eindecomp.planner.costs.cost import decided_cost, paper_cost
from eindecomp.planner.costs.price import OBJECTIVES, Objective, price_of
from eindecomp.planner.options import INPUTS, SOLVERS
from eindecomp.planner.plan import Plan
from eindecomp.planner.space.choices import parts_by_label
from eindecomp.planner.space.layout_rules import LayoutRules, checked_ties, pinned_homes
from eindecomp.planner.space.pin import loosely_cut
from eindecomp.planner.space.strategy import rules_under
from eindecomp.store.asked_options import read_orders, read_pin, read_strategy
from eindecomp.store.decisions import check_divided, read_decisions, read_given
from eindecomp.store.field import Field, FileFormat
from eindecomp.store.layout_checks import check_cuts, check_homes
from eindecomp.store.machine_file import machine_json, read_machine, read_mesh
from eindecomp.store.whole_file import write_whole

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.layout.cut import Cut
    from eindecomp.planner.costs.cost import Cost
    from eindecomp.planner.options import Orders
    from eindecomp.planner.space.choices import Layouts
    from eindecomp.planner.space.pin import Pins

_FIELDS = (
    "graph", "mesh", "pieces", "objective", "inputs", "strategy", "pin", "tie", "memory", "work",
    "orders", "machine", "solver", "method", "seconds", "cost", "bound", "vertices", "given",
)  # fmt: skip
PLAN_FILE = FileFormat("plan", "eindecomp plan", 1, _FIELDS, 256 << 20)
_ROUNDING = 1e-9


# Writing


def save(plan: Plan, path: str | Path) -> None:
    """Write a plan to a file, completely or not at all."""
    write_whole(Path(path), to_json(plan))


def to_json(plan: Plan) -> bytes:
    """A plan as JSON."""
    if isinstance(plan.objective, Objective):
        raise PlanError(
            f"a plan for objective {plan.objective.name!r} cannot be saved: a file has no prices, "
            f"only the names {', '.join(OBJECTIVES)}"
        )
    text = str(plan.graph)
    if len(text) > MAX_TEXT:
        raise PlanError(f"the graph's text is longer than {MAX_TEXT:,} characters")
    content: dict[str, Any] = {
        **PLAN_FILE.head(),
        "objective": plan.objective,
        "cost": plan.cost,
        "bound": plan.bound,
        "mesh": list(zip(plan.mesh.names, plan.mesh.sizes, strict=True)),
        "pieces": plan.pieces,
        "inputs": plan.inputs,
        "strategy": plan.strategy,
        "pin": plan.pin,
        "tie": plan.tie,
        "memory": plan.memory,
        "work": None if plan.work is None else _number_json(plan.work),
        "orders": None if plan.orders is None else _orders_json(plan.orders),
        "machine": None if plan.machine is None else machine_json(plan.machine),
        "solver": plan.solver,
        "method": plan.method,
        "seconds": plan.seconds,
        "vertices": {name: _decision_json(plan, name) for name in plan.parts},
        "given": {name: _layouts_json(plan.mesh, lies) for name, lies in plan.given.items()},
        "graph": text,
    }
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_INDENT_2)


def _number_json(number: float) -> float | str:
    return "inf" if isinf(number) else number


def _orders_json(orders: Orders) -> dict[str, Any]:
    considered, complete = orders.considered, orders.complete
    return {"considered": considered, "complete": complete, "most": dict(orders.most)}


def _decision_json(plan: Plan, name: str) -> dict[str, Any]:
    vertex, decision, axes = plan.graph[name], plan.decisions[name], plan.mesh.names
    view = view_of(plan.graph, vertex)
    labels = zip(view.labels, decision.assignment, strict=True)
    places = zip(vertex.labels, decision.places, strict=True)
    return {
        "assignment": {label: [axes[a] for a in own] for label, own in labels if own},
        "scattered": {label: [axes[a] for a in own] for label, own in places if own},
        "further": _further_json(plan.mesh, decision.second),
    }


def _layouts_json(mesh: Mesh, lies: Layouts) -> dict[str, Any]:
    return {"home": _cut_json(mesh, lies.home), "further": _further_json(mesh, lies.second)}


def _further_json(mesh: Mesh, second: Cut | None) -> list[dict[str, Any]] | None:
    return None if second is None else _cut_json(mesh, second)


def _cut_json(mesh: Mesh, cut: Cut) -> list[dict[str, Any]]:
    return [
        {
            "axes": [mesh.names[axis] for axis in span.axes],
            "start": span.start, "stop": span.stop, "scale": span.scale,
        }
        for span in cut
    ]  # fmt: skip


# Reading


def load(path: str | Path) -> Plan:
    """Read a plan from a file, checking all of it."""
    return PLAN_FILE.load(path, _plan)


def from_json(data: bytes, name: str = "plan") -> Plan:
    """Read a plan from JSON; `name` is what errors call it."""
    return PLAN_FILE.read(data, name, _plan)


def _plan(root: Field) -> Plan:
    graph = _graph(root["graph"])
    mesh = replace(read_mesh(root["mesh"]), pieces=root["pieces"].one_of(PIECES))
    objective = root["objective"].one_of(OBJECTIVES)
    inputs = root["inputs"].one_of(INPUTS)
    machine = None if root["machine"].value is None else read_machine(root["machine"])
    if objective == "time" and machine is None:
        raise root["machine"].wrong("objective 'time' needs a machine")
    decisions = read_decisions(graph, mesh, root["vertices"])
    pin = read_pin(graph, mesh, root["pin"])
    strategy, restriction = read_strategy(graph, mesh.devices, root["strategy"])
    rules = _rules(graph, mesh, root, pin, inputs, objective)
    if restriction is not None:
        rules = rules_under(restriction, graph, mesh, rules)
    loose = loosely_cut(graph, mesh, rules.pinned)
    if objective != "time":
        divided = {name: own for name, own in decisions.items() if name not in loose}
        check_divided(graph, mesh, divided, root["vertices"])
    parts = {
        name: parts_by_label(view_of(graph, graph[name]), mesh, decision)
        for name, decision in decisions.items()
    }
    if restriction is not None:
        check_cuts(graph, mesh, restriction, parts, loose)
    given = read_given(graph, mesh, root["given"])
    check_homes(graph, mesh, rules, pin, decisions, given)
    if objective == "bound":
        costs = paper_cost(graph, {name: tuple(own.values()) for name, own in parts.items()})
    else:
        costs = decided_cost(graph, price_of(objective, mesh, machine), decisions, given)
    work, orders = read_orders(graph, root)
    return Plan(
        graph, mesh, objective, inputs, parts, decisions, given, costs,
        _bound(root, costs, objective),
        strategy=strategy,
        pin=pin,
        tie=dict(rules.tie),
        machine=machine,
        memory=_memory(root["memory"], objective),
        work=work,
        orders=orders,
        solver=_solver(root["solver"], objective),
        method=root["method"].text(),
        seconds=float(root["seconds"].number()),
    )  # fmt: skip


def _rules(
    graph: Graph, mesh: Mesh, root: Field, pin: Pins, inputs: str, objective: str
) -> LayoutRules:
    """What the file says about where tensors lie."""
    tie = {name: result.text() for name, result in root["tie"].members()}
    if objective == "bound" and (pin or tie):
        raise PlanError("pin and tie: objective 'bound' has no layouts")
    ties = checked_ties(graph, tie)
    return LayoutRules(inputs, pinned_homes(graph, mesh, pin, ties), ties)


def _graph(field: Field) -> Graph:
    if not isinstance(field.value, str):
        raise field.wrong("must be the text of a graph")
    try:
        with as_written():
            return parse(field.value, "graph")
    except EinDecompError as error:
        raise field.wrong(str(error)) from None


def _memory(field: Field, objective: str) -> int | None:
    if field.value is None:
        return None
    if objective == "bound":
        raise field.wrong("must be null: objective 'bound' has no layouts")
    return field.whole()


def _solver(field: Field, objective: str) -> str:
    solver = field.one_of(SOLVERS)
    if solver in ("tree", "linear") and objective != "bound":
        raise field.wrong(f"{solver!r} is only for objective 'bound'")
    return solver


def _bound(root: Field, costs: Cost, objective: str) -> int | float:
    """The proved bound, after checking that the cost is the one that decisions make."""
    cost, bound = root["cost"].number(), root["bound"].number()
    rounding = _ROUNDING if objective == "time" else 0
    if not isclose(cost, costs.total, rel_tol=rounding):
        raise root["cost"].wrong(f"is {cost}, but the decisions cost {costs.total}")
    if bound > costs.total * (1 + rounding):
        raise root["bound"].wrong(f"is {bound}, above the cost {costs.total}")
    return bound

"""Plans as JSON files.

A file holds the graph as text, the mesh, what was asked for, and for every vertex which axes cut
which label and where its reduced result lies. All else is made again from that when the file is
read; the cost must then be the one that the file states. What else was asked for (the
strategy, the limit on memory, contraction orders), the proved bound and how the plan was found are
taken at their word.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from math import isclose
from pathlib import Path
from typing import Any

import orjson

from eindecomp.engines.whole_files import write_whole
from eindecomp.errors import PlanError
from eindecomp.graph.checks import as_written
from eindecomp.graph.graph import Graph
from eindecomp.graph.reduce_types import reduce_types, with_reduce_types
from eindecomp.graph.rewrites.recompute import LAYERS, Recompute
from eindecomp.graph.text.elaborate import parse
from eindecomp.lang.text.resolve import MAX_TEXT
from eindecomp.layout.cut import pending_in
from eindecomp.layout.mesh import LOOKUPS, PIECES, Mesh
from eindecomp.layout.view import view_of
from eindecomp.planner.costs.cost import Cost, decided_cost, paper_cost
from eindecomp.planner.costs.price import OBJECTIVES, Objective, price_of
from eindecomp.planner.options import INPUTS, SOLVERS, STOPPED_BY
from eindecomp.planner.plan import Plan
from eindecomp.planner.space.choices import parts_by_label
from eindecomp.planner.space.layout_rules import LayoutRules, checked_ties, pinned_homes
from eindecomp.planner.space.strategy import rules_under
from eindecomp.solve.problem.arrays import INFINITE
from eindecomp.store import plan_decisions
from eindecomp.store.field import Field, FileFormat
from eindecomp.store.machine_file import machine_json, plain_json, read_axes, read_machine

_FIELDS = (
    "objective", "cost", "bound", "mesh", "pieces", "lookups", "inputs", "strategy", "pin", "tie",
    "memory", "work", "orders", "pending", "reduce_dtype", "recompute", "microbatches", "machine",
    "solver", "method", "stopped_by", "seconds", "vertices", "given", "graph",
)  # fmt: skip
"""What a file says of a plan, in this order: its attributes, some of them in another form."""
PLAN_FILE = FileFormat("plan", "eindecomp plan", 2, _FIELDS, 256 << 20)
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
    own: dict[str, Any] = {
        "mesh": list(zip(plan.mesh.names, plan.mesh.sizes, strict=True)),
        "work": plain_json(plan.work),
        "orders": None if plan.orders is None else asdict(plan.orders),
        "machine": None if plan.machine is None else machine_json(plan.machine),
        "vertices": {name: plan_decisions.decision_json(plan, name) for name in plan.parts},
        "given": {
            name: plan_decisions.layouts_json(plan.mesh, lies) for name, lies in plan.given.items()
        },
        "graph": text,
    }
    content = {name: own[name] if name in own else getattr(plan, name) for name in _FIELDS}
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_INDENT_2
    return orjson.dumps(PLAN_FILE.head() | content, option=options)


# Reading


def load(path: str | Path) -> Plan:
    """Read a plan from a file, checking all of it."""
    return PLAN_FILE.load(path, _plan)


def from_json(data: bytes, name: str = "plan") -> Plan:
    """Read a plan from JSON; `name` is what errors call it."""
    return PLAN_FILE.read(data, name, _plan)


def _plan(root: Field) -> Plan:
    graph = _graph(root["graph"])
    pieces, lookups = root["pieces"].one_of(PIECES), root["lookups"].one_of(LOOKUPS)
    mesh = replace(Mesh.of_axes(read_axes(root["mesh"])), pieces=pieces, lookups=lookups)
    objective = root["objective"].one_of(OBJECTIVES)
    inputs = root["inputs"].one_of(INPUTS)
    machine = root["machine"].if_any(read_machine)
    if objective == "time" and machine is None:
        raise root["machine"].wrong("objective 'time' needs a machine")
    decisions, pending = (
        plan_decisions.read_decisions(graph, mesh, root["vertices"]),
        root["pending"].truth(),
    )
    if not pending and any(own.waits or pending_in(own.home) for own in decisions.values()):
        raise root["pending"].wrong("is false, but results stay pending")
    pin = plan_decisions.read_pin(graph, mesh, root["pin"])
    tie = {name: result.text() for name, result in root["tie"].members()}
    memory = root["memory"].if_any(Field.whole)
    if objective == "bound" and (pin or tie or memory is not None):
        raise PlanError("pin, tie and memory: objective 'bound' has no layouts")
    ties = checked_ties(graph, tie)
    travels = {name: of.text() for name, of in root["reduce_dtype"].members()}
    graph = with_reduce_types(graph, reduce_types(graph, travels), ties)
    rules = LayoutRules(inputs, pinned_homes(graph, mesh, pin, ties), ties)
    strategy, restriction = plan_decisions.read_strategy(graph, mesh.devices, root["strategy"])
    if restriction is not None:
        rules = rules_under(restriction, graph, mesh, rules)
    given = plan_decisions.read_given(graph, mesh, root["given"])
    plan_decisions.check_homes(graph, mesh, rules, pin, decisions, given)
    parts = {
        name: parts_by_label(view_of(graph, graph[name]), mesh, decision)
        for name, decision in decisions.items()
    }
    if objective == "bound":
        costs = paper_cost(graph, {name: tuple(own.values()) for name, own in parts.items()})
    else:
        costs = decided_cost(graph, price_of(objective, mesh, machine), decisions, given)
    work, orders = plan_decisions.read_orders(graph, root)
    return Plan(
        graph, mesh, objective, inputs, parts, decisions, given, costs,
        _bound(root, costs, objective),
        strategy=strategy,
        pin=pin,
        tie=dict(rules.tie),
        machine=machine,
        memory=memory,
        work=work,
        orders=orders,
        pending=pending,
        reduce_dtype=travels,
        recompute=_recompute(root["recompute"]),
        microbatches={label: own.whole(1) for label, own in root["microbatches"].members()},
        solver=root["solver"].one_of(SOLVERS),
        method=root["method"].text(),
        stopped_by=root["stopped_by"].one_of(STOPPED_BY),
        seconds=float(root["seconds"].number()),
    )  # fmt: skip


def _recompute(field: Field) -> Recompute:
    """What the backward pass computes again: the graph has that already."""
    if isinstance(field.value, list):
        return tuple(name.text() for name in field.items())
    if isinstance(field.value, int):
        return field.whole(1)
    return field.if_any(lambda kind: kind.one_of((LAYERS,)))


def _graph(field: Field) -> Graph:
    if not isinstance(field.value, str):
        raise field.wrong("must be the text of a graph")
    with field.named(), as_written():
        return parse(field.value, "graph")


def _bound(root: Field, costs: Cost, objective: str) -> int | float:
    """The proved bound, after the stated cost is checked against the decisions."""
    cost, bound = root["cost"].number(), root["bound"].number()
    if costs.total >= INFINITE:
        raise root["vertices"].wrong("a vertex reads what does not lie as it needs it")
    rounding = _ROUNDING if objective == "time" else 0
    if not isclose(cost, costs.total, rel_tol=rounding):
        raise root["cost"].wrong(f"is {cost}, but the decisions cost {costs.total}")
    if bound > costs.total * (1 + rounding):
        raise root["bound"].wrong(f"is {bound}, above the cost {costs.total}")
    return bound

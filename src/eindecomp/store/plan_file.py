"""Plans as JSON files.

A file holds the graph as text, the mesh, what was asked for, and for every vertex which axes cut
which label and where what it sums over devices ends. All else is made again from that when it is
read, the cost included, which must be the one that the file states. Only the proved bound, the
limit on memory and how the plan was found are taken at their word.
"""

from __future__ import annotations

from math import isclose, isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from eindecomp.errors import EinDecompError, PlanError
from eindecomp.graph.text.elaborate import parse
from eindecomp.lang.text.read import MAX_TEXT
from eindecomp.planner.costs.cost import decided_cost, paper_cost
from eindecomp.planner.costs.machine import Machine
from eindecomp.planner.costs.objectives import OBJECTIVES, Objective, price_of
from eindecomp.planner.options import INPUTS, SOLVERS
from eindecomp.planner.plan import Plan
from eindecomp.planner.space.choices import UNUSED
from eindecomp.planner.space.decision import parts_by_label
from eindecomp.planner.space.mesh import Mesh
from eindecomp.planner.space.reduce_scatter import REPLICATED
from eindecomp.planner.space.strategy import strategy_of
from eindecomp.planner.space.view import view_of
from eindecomp.store.decisions import read_decisions, read_given
from eindecomp.store.field import Field
from eindecomp.store.pins import check_pin, pin_of_given, read_pin
from eindecomp.store.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.planner.costs.cost import Cost
    from eindecomp.planner.space.cut import Cut

FORMAT = "eindecomp plan"
VERSION = 1
MAX_BYTES = 256 << 20
_FIELDS = (
    "format", "version", "graph", "mesh", "objective", "inputs", "strategy", "solver", "method",
    "machine", "memory", "seconds", "cost", "bound", "vertices", "given",
)  # fmt: skip
_LATER = ("pin",)  # fields that the first files did not have
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
        "format": FORMAT,
        "version": VERSION,
        "objective": plan.objective,
        "cost": plan.cost,
        "bound": plan.bound,
        "mesh": list(zip(plan.mesh.names, plan.mesh.sizes, strict=True)),
        "inputs": plan.inputs,
        "strategy": plan.strategy,
        "pin": plan.pin,
        "memory": plan.memory,
        "machine": None if plan.machine is None else _machine_json(plan.machine),
        "solver": plan.solver,
        "method": plan.method,
        "seconds": plan.seconds,
        "vertices": {name: _decision_json(plan, name) for name in plan.parts},
        "given": {name: _cut_json(plan.mesh, cut) for name, cut in plan.given.items()},
        "graph": text,
    }
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_INDENT_2)


def _machine_json(machine: Machine) -> dict[str, Any]:
    def number(given: float | Mapping[str, float]) -> Any:
        if isinstance(given, int | float):
            return "inf" if isinf(given) else given
        return {name: number(value) for name, value in given.items()}

    rates = ("flops", "memory_bandwidth", "bandwidth", "latency")
    rates_json = {name: number(getattr(machine, name)) for name in rates}
    return rates_json | {"mesh": list(machine.mesh.items())}


def _decision_json(plan: Plan, name: str) -> dict[str, Any]:
    vertex, decision, axes = plan.graph[name], plan.decisions[name], plan.mesh.names
    view = view_of(plan.graph, vertex)
    assignment: dict[str, list[str]] = {}
    summed: dict[str, str | None] = {}
    for axis, label, place in zip(axes, decision.assignment, decision.places, strict=True):
        if label != UNUSED:
            assignment.setdefault(view.labels[label], []).append(axis)
        if label in view.aggregated:
            summed[axis] = None if place == REPLICATED else vertex.labels[place]
    second = decision.second
    return {
        "assignment": assignment,
        "summed": summed,
        "further": None if second is None else _cut_json(plan.mesh, second),
    }


def _cut_json(mesh: Mesh, cut: Cut) -> list[dict[str, Any]]:
    def names(axes: int) -> list[str]:
        return [name for a, name in enumerate(mesh.names) if axes >> a & 1]

    return [
        {
            "axes": names(span.axes), "inner": names(span.inner),
            "start": span.start, "stop": span.stop, "scale": span.scale,
        }
        for span in cut
    ]  # fmt: skip


# Reading


def load(path: str | Path) -> Plan:
    """Read a plan from a file, checking all of it."""
    with Path(path).open("rb") as file:
        return from_json(file.read(MAX_BYTES + 1), str(path))


def from_json(data: bytes, name: str = "plan") -> Plan:
    """Read a plan from JSON; `name` is what errors call it."""
    try:
        if len(data) > MAX_BYTES:
            raise PlanError(f"a plan file has at most {MAX_BYTES >> 20} MiB")
        return _plan(_root(data))
    except PlanError as error:
        raise PlanError(f"{name}: {error}") from None


def _root(data: bytes) -> Field:
    try:
        root = Field(orjson.loads(data))
    except orjson.JSONDecodeError as error:
        raise PlanError(f"not JSON: {error}") from None
    if not isinstance(root.value, dict) or "format" not in root.value:
        raise PlanError(f'not a plan: it has no "format": "{FORMAT}"')
    root["format"].one_of((FORMAT,))
    root["version"].whole(VERSION, VERSION)
    root.check_names(_FIELDS, optional=_LATER)
    return root


def _plan(root: Field) -> Plan:
    graph = _graph(root["graph"])
    mesh = _mesh(root["mesh"])
    objective = root["objective"].one_of(OBJECTIVES)
    inputs = root["inputs"].one_of(INPUTS)
    machine = None if root["machine"].value is None else _machine(root["machine"])
    if objective == "time" and machine is None:
        raise root["machine"].wrong("objective 'time' needs a machine")
    decisions = read_decisions(graph, mesh, root["vertices"], whole=objective != "time")
    parts = {
        name: parts_by_label(view_of(graph, graph[name]), mesh, decision)
        for name, decision in decisions.items()
    }
    given = read_given(graph, mesh, root["given"])
    said = "pin" in root
    pin = read_pin(graph, mesh, root["pin"]) if said else pin_of_given(graph, mesh, given)
    check_pin(graph, mesh, pin, objective, decisions, given)
    if objective == "bound":
        costs = paper_cost(graph, {name: tuple(own.values()) for name, own in parts.items()})
    else:
        price = price_of(objective, mesh, machine)
        costs = decided_cost(graph, price, decisions, given, inputs)
    memory = root["memory"]
    return Plan(
        graph, mesh, objective, inputs, parts, decisions, given, costs,
        _bound(root, costs, objective),
        strategy=_strategy(graph, root["strategy"]),
        pin=pin,
        machine=machine,
        memory=None if memory.value is None else memory.whole(),
        solver=root["solver"].one_of(SOLVERS),
        method=root["method"].text(),
        seconds=float(root["seconds"].number()),
    )  # fmt: skip


def _graph(field: Field) -> Graph:
    if not isinstance(field.value, str):
        raise field.wrong("must be the text of a graph")
    try:
        return parse(field.value, "graph")
    except EinDecompError as error:
        raise field.wrong(str(error)) from None


def _mesh(field: Field) -> Mesh:
    axes: dict[str, int] = {}
    for axis in field.items():
        pair = axis.items()
        if len(pair) != 2:
            raise axis.wrong("must be a name and a size")
        name = pair[0].text()
        if name in axes:
            raise axis.wrong(f"axis {name!r} is there twice")
        axes[name] = pair[1].whole(2)
    try:
        return Mesh.of_axes(axes)
    except PlanError as error:
        raise field.wrong(str(error)) from None


def _machine(field: Field) -> Machine:
    def number(own: Field) -> float:
        return float("inf") if own.value == "inf" else own.number()

    def by_axis(own: Field) -> float | dict[str, float]:
        if not isinstance(own.value, dict):
            return number(own)
        return {name: number(value) for name, value in own.members()}

    field.check_names(("flops", "memory_bandwidth", "bandwidth", "latency", "mesh"))
    mesh = _mesh(field["mesh"])
    try:
        return Machine(
            number(field["flops"]),
            number(field["memory_bandwidth"]),
            by_axis(field["bandwidth"]),
            by_axis(field["latency"]),
            dict(zip(mesh.names, mesh.sizes, strict=True)),
        )
    except PlanError as error:
        raise field.wrong(str(error)) from None


def _strategy(graph: Graph, field: Field) -> str | tuple[str, ...] | None:
    if field.value is None:
        return None
    if isinstance(field.value, list):
        strategy = tuple(label.text() for label in field.items())
    else:
        strategy = field.text()
    try:
        strategy_of(strategy, graph)
    except PlanError as error:
        raise field.wrong(str(error)) from None
    return strategy


def _bound(root: Field, costs: Cost, objective: str) -> int | float:
    """The proved bound, after checking that the cost is the one that decisions make."""
    cost, bound = root["cost"].number(), root["bound"].number()
    rounding = _ROUNDING if objective == "time" else 0
    if not isclose(cost, costs.total, rel_tol=rounding):
        raise root["cost"].wrong(f"is {cost}, but the decisions cost {costs.total}")
    if bound > costs.total * (1 + rounding):
        raise root["bound"].wrong(f"is {bound}, above the cost {costs.total}")
    return bound

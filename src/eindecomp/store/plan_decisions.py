"""The parts of a plan file that decide: what was asked for, which axes cut what, what lies where.

Whatever is read here is checked: a file may be damaged, or somebody else's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from eindecomp.errors import PlanError, quote, suggest
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input
from eindecomp.graph.parts import Parts, parts_of
from eindecomp.graph.vertex import Vertex
from eindecomp.layout.cut import Axes, Cut, Span, pending_in, pieces_by, span_of
from eindecomp.layout.mesh import Mesh, can_cut
from eindecomp.layout.view import Dim, View, Way, is_planned, view_of
from eindecomp.planner.options import Orders, check_work
from eindecomp.planner.plan import Plan
from eindecomp.planner.space.choices import (
    Assignment,
    Decision,
    Layouts,
    Wait,
    choices,
    summed_axes,
)
from eindecomp.planner.space.homes import Places, Settled
from eindecomp.planner.space.layout_rules import LayoutRules, read_tensors
from eindecomp.planner.space.pin import Pins, agrees
from eindecomp.planner.space.strategy import AnyStrategy, StrategyForm, strategy_form, strategy_of
from eindecomp.store.field import Field

# Writing


def decision_json(plan: Plan, name: str) -> dict[str, Any]:
    """The decision of a vertex."""
    vertex, decision = plan.graph[name], plan.decisions[name]
    labels = view_of(plan.graph, vertex).labels
    left = pending_in(decision.home)
    return {
        "assignment": _axes_json(plan.mesh, labels, decision.assignment),
        "waits": [_wait_json(plan.mesh, wait) for wait in decision.waits],
        "scattered": _axes_json(plan.mesh, vertex.labels, decision.places[: len(vertex.shape)]),
        "pending": [plan.mesh.names[axis] for axis in (() if left is None else left.axes)],
        "further": _cut_json(plan.mesh, decision.second),
    }


def _wait_json(mesh: Mesh, wait: Wait) -> dict[str, Any]:
    axes = [mesh.names[axis] for axis in wait.axes]
    return {"operands": list(wait.operands), "agg": wait.agg, "axes": axes}


def layouts_json(mesh: Mesh, lies: Layouts) -> dict[str, Any]:
    """Where an input lies."""
    return {"home": _cut_json(mesh, lies.home), "further": _cut_json(mesh, lies.second)}


def _axes_json(mesh: Mesh, labels: Iterable[str], axes: Iterable[Axes]) -> dict[str, list[str]]:
    named = zip(labels, axes, strict=True)
    return {label: [mesh.names[axis] for axis in own] for label, own in named if own}


def _cut_json(mesh: Mesh, cut: Cut | None) -> list[dict[str, Any]] | None:
    if cut is None:
        return None
    return [
        {
            "axes": [mesh.names[axis] for axis in span.axes],
            "start": span.start, "stop": span.stop, "scale": span.scale,
        }
        for span in cut
    ]  # fmt: skip


# Reading what was asked for


def read_pin(graph: Graph, mesh: Mesh, field: Field) -> Pins:
    """The pins: for each tensor, pieces or axes for its labels."""
    pins: Pins = {}
    field.check_names((), "the graph has no tensor", optional=tuple(graph.vertices))
    for name, wanted in field.members():
        pins[name] = {}
        wanted.check_names((), f"{graph[name]} has no label", optional=graph[name].labels)
        for label, own in wanted.members():
            if isinstance(own.value, list):
                pins[name][label] = tuple(mesh.names[axis] for axis in _axes(mesh, own, set()))
            else:
                pins[name][label] = own.whole(1)
    return pins


def read_strategy(
    graph: Graph, devices: int, field: Field
) -> tuple[StrategyForm | None, AnyStrategy | None]:
    """The strategy as it was given, and as the restriction that it puts on plans."""
    if field.value is None:
        return None, None
    if isinstance(field.value, list):
        given = tuple(label.text() for label in field.items())
    elif isinstance(field.value, dict):
        given = cast("dict[str, Any]", field.value)
    else:
        given = field.text()
    with field.named():
        return strategy_form(given), strategy_of(given, graph, devices)


def read_orders(graph: Graph, root: Field) -> tuple[float | None, Orders | None]:
    """The limit on work, and the orders chosen within it."""
    work = root["work"].if_any(Field.number_or_inf)
    if work is not None:
        with root["work"].named():
            check_work(work)
    orders = root["orders"].if_any(lambda field: _orders(graph, field))
    if orders is None and work is not None and not root["pending"].truth():
        raise root["work"].wrong(
            "must be null where orders is, and pending false: it limits nothing"
        )
    if orders is not None and work is None:
        raise root["work"].wrong("must be the limit within which the orders were chosen, not null")
    return work, orders


def _orders(graph: Graph, field: Field) -> Orders:
    field.check_names(("considered", "complete", "most"))
    field["most"].check_names((), "the graph has no vertex", optional=tuple(graph.vertices))
    most = {name: float(limit.number()) for name, limit in field["most"].members()}
    return Orders(field["considered"].whole(1), field["complete"].truth(), most)


# Reading decisions


def read_decisions(graph: Graph, mesh: Mesh, field: Field) -> dict[str, Decision]:
    """The decision of every planned vertex."""
    planned = [vertex for vertex in graph.vertices.values() if is_planned(vertex)]
    field.check_names([vertex.name for vertex in planned], "the graph has no computed vertex")
    parts = parts_of(graph)
    return {
        vertex.name: _decision(mesh, vertex, view_of(graph, vertex), parts, field[vertex.name])
        for vertex in planned
    }


def _decision(
    mesh: Mesh, vertex: Vertex, view: View, parts: Mapping[str, Parts], field: Field
) -> Decision:
    field.check_names(("assignment", "waits", "scattered", "pending", "further"))
    used: set[int] = set()
    assignment = _assignment(mesh, view, field["assignment"], used)
    known = parts.get(vertex.name)
    waits = tuple(_wait(mesh, known, each, used) for each in field["waits"].items())
    ways = tuple(Way(wait.operands, wait.agg) for wait in waits)
    own = (*assignment, *(wait.axes for wait in waits))
    summed = summed_axes(view.waiting(ways, mesh.devices, ""), own)
    taken: set[int] = set()
    places = _places(mesh, vertex, summed, field["scattered"], taken)
    left = _axes(mesh, field["pending"], taken, summed)
    if left and known is None:
        raise field["pending"].wrong(f"{vertex} cannot be left in parts")
    view = view.waiting(ways, mesh.devices, known.agg.name if left and known is not None else "")
    places = (*places, left) if left else places
    made = choices(view, mesh, (own,), Settled(places, (1 << len(mesh.sizes)) - 1))
    if made.places[0, 0] != places:
        raise field["scattered"].wrong(f"{vertex} is too small to be cut like that")
    second = _further(mesh, vertex, field["further"])
    return Decision(assignment, places, made.homes[0], second, waits)


def _wait(mesh: Mesh, known: Parts | None, field: Field, used: set[int]) -> Wait:
    """Operands that are read in parts, and along which axes."""
    field.check_names(("operands", "agg", "axes"))
    operands = tuple(each.whole() for each in field["operands"].items())
    agg = "" if known is None or known.read is None else known.read.name
    is_set = operands == tuple(sorted({*operands}))
    is_known = is_set and known is not None and frozenset(operands) in known.sets
    if not is_known or field["agg"].text() != agg:
        raise field.wrong("these operands cannot be read in parts like that")
    axes = _axes(mesh, field["axes"], used)
    if not axes:
        raise field["axes"].wrong("names no axis")
    return Wait(axes, operands, agg)


def _assignment(mesh: Mesh, view: View, field: Field, used: set[int]) -> Assignment:
    """The axes of every label."""
    field.check_names((), "there is no label to cut", optional=view.labels)
    given = {label: _axes(mesh, axes, used) for label, axes in field.members()}
    assignment = tuple(given.get(label, ()) for label in view.labels)
    for label, size, axes in zip(view.labels, view.sizes, assignment, strict=True):
        if not can_cut(mesh.pieces, size, pieces := pieces_by(mesh, axes)):
            equal = " equal pieces" if mesh.cuts_evenly else ""
            raise field.wrong(f"label {label!r} of size {size} cannot be cut into {pieces}{equal}")
    return assignment


def _places(mesh: Mesh, vertex: Vertex, summed: int, field: Field, used: set[int]) -> Places:
    """The summed axes that cut each dimension of the result further; all others replicate it."""
    field.check_names((), f"{vertex} has no label", optional=vertex.labels)
    given = {label: _axes(mesh, axes, used, summed) for label, axes in field.members()}
    return tuple(given.get(label, ()) for label in vertex.labels)


def _axes(mesh: Mesh, field: Field, used: set[int], summed: int = -1) -> tuple[int, ...]:
    """A list of axes, all of them `summed` ones, none of which may have been used before."""
    axes: list[int] = []
    for axis in field.items():
        name = axis.text()
        if name not in mesh.names:
            raise axis.wrong(f"the mesh has no axis {quote(name)}{suggest(name, mesh.names)}")
        number = mesh.names.index(name)
        if not summed >> number & 1:
            raise axis.wrong("nothing is summed over this axis")
        if number in used:
            raise axis.wrong(f"axis {name!r} is used twice")
        used.add(number)
        axes.append(number)
    return tuple(axes)


# Reading where tensors lie


def read_given(graph: Graph, mesh: Mesh, field: Field) -> dict[str, Layouts]:
    """The layouts of inputs that have a home."""
    given: dict[str, Layouts] = {}
    inputs = tuple(vertex.name for vertex in graph.inputs)
    field.check_names((), "the graph has no input", optional=inputs)
    for name, own in field.members():
        own.check_names(("home", "further"))
        home = _cut(mesh, graph[name], own["home"])
        for span, size in zip(home, graph[name].shape, strict=True):
            if (span.start, span.stop) != (0, size):
                raise own["home"].wrong("an input's layout must cover all of it")
        given[name] = Layouts(home, _further(mesh, graph[name], own["further"]))
    return given


def _further(mesh: Mesh, vertex: Vertex, field: Field) -> Cut | None:
    """A second layout, if there is one."""
    return field.if_any(lambda own: _cut(mesh, vertex, own, is_read=True))


def _cut(mesh: Mesh, vertex: Vertex, field: Field, *, is_read: bool = False) -> Cut:
    """A layout: one span for each dimension.

    One that some reader needs may cut two dimensions along the same axis, as a diagonal is read.
    """
    spans = field.items()
    if len(spans) != len(vertex.shape):
        raise field.wrong(f"{vertex} needs {len(vertex.shape)} spans, not {len(spans)}")
    used: set[int] = set()
    cut: list[Span] = []
    for span, size in zip(spans, vertex.shape, strict=True):
        span.check_names(("axes", "start", "stop", "scale"))
        start = span["start"].whole(0, size)
        stop = span["stop"].whole(start, size)
        scale = span["scale"].whole(1, max(stop - start, 1))
        axes = _axes(mesh, span["axes"], set() if is_read else used)
        units, rest = divmod(stop - start, scale)
        if rest or not can_cut(mesh.pieces, max(units, 1), pieces_by(mesh, axes)):
            raise span.wrong(
                f"{stop - start} elements in blocks of {scale} cannot be cut like that"
            )
        cut.append(span_of(Dim(None, start, stop, scale), axes))
    return tuple(cut)


def check_homes(
    graph: Graph,
    mesh: Mesh,
    rules: LayoutRules,
    pin: Pins,
    decisions: Mapping[str, Decision],
    given: Mapping[str, Layouts],
) -> None:
    """Check that inputs have a home if they must, and that pins and ties are kept."""
    read = read_tensors(graph)
    kept = {v.name for v in graph.outputs} | {*rules.tie.values()}
    for name in kept & decisions.keys():
        if pending_in(decisions[name].home) is not None:
            raise PlanError(f"vertices.{name}: a result that is given back cannot be left in parts")
    for vertex in graph.inputs:
        name = vertex.name
        if name in given and not rules.has_home(vertex):
            raise PlanError(f"given.{name}: has a layout, but the input is free")
        if name not in given:
            if rules.has_home(vertex) and (name in read or name in rules.pinned):
                raise PlanError(f"given.{name}: is missing, but the input has a home")
        elif name in rules.tie and given[name].home != decisions[rules.tie[name]].home:
            raise PlanError(
                f"given.{name}: does not lie where {rules.tie[name]!r}, to which it is tied, is"
            )
    for name, cuts in rules.pinned.items():
        is_input = isinstance(graph[name].op, Input)
        home = given[name].home if is_input else decisions[name].home
        if not agrees(mesh, home, cuts):
            place = "given" if is_input else "vertices"
            raise PlanError(
                f"{place}.{name}: {graph[name]} does not lie where {_wanted(name, rules, pin)}"
            )


def _wanted(name: str, rules: LayoutRules, pin: Pins) -> str:
    """Where a tensor must lie, and why."""
    if name in pin:
        return f"it is pinned, {pin[name]}"
    for tied, result in rules.tie.items():
        if result == name and tied in pin:
            return f"{tied!r}, which is tied to it, is pinned, {pin[tied]}"
    return "the strategy puts state"

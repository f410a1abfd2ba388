"""Reads the decisions of a plan file: which axes cut which label, and where everything lies."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from eindecomp.errors import quote, suggest
from eindecomp.graph.ops import Input
from eindecomp.planner.space.choices import UNUSED, choices
from eindecomp.planner.space.cut import parts_of, span_of
from eindecomp.planner.space.decision import Decision
from eindecomp.planner.space.reduce_scatter import REPLICATED
from eindecomp.planner.space.view import Dim, is_planned, view_of

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.space.cut import Cut
    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.planner.space.view import View
    from eindecomp.store.field import Field


def read_decisions(graph: Graph, mesh: Mesh, field: Field, *, whole: bool) -> dict[str, Decision]:
    """The decision of every planned vertex.

    With `whole`, an axis may be left unused only if it could not cut any label.
    """
    planned = [vertex for vertex in graph.vertices.values() if is_planned(vertex)]
    names = [vertex.name for vertex in planned]
    field.check_names(names, "the graph has no computed vertex")
    return {vertex.name: _decision(graph, mesh, vertex, field, whole=whole) for vertex in planned}


def _decision(graph: Graph, mesh: Mesh, vertex: Vertex, fields: Field, *, whole: bool) -> Decision:
    field = fields[vertex.name]
    field.check_names(("assignment", "summed", "further"))
    view = view_of(graph, vertex)
    assignment = _assignment(mesh, view, field["assignment"], whole=whole)
    places = _places(mesh, vertex, view, assignment, field["summed"])
    own = choices(view, mesh, (assignment,), tuple(enumerate(places)))
    if own.places[0, 0] != places:
        raise field["summed"].wrong(f"{vertex} is too small to be cut like that")
    second = field["further"]
    return Decision(
        assignment,
        own.places[0, 0],
        own.homes[0],
        None if second.value is None else _cut(mesh, vertex, second),
    )


def axis_number(mesh: Mesh, field: Field) -> int:
    """Which axis of the mesh a field names."""
    name = field.text()
    if name not in mesh.names:
        raise field.wrong(f"the mesh has no axis {quote(name)}{suggest(name, mesh.names)}")
    return mesh.names.index(name)


def _assignment(mesh: Mesh, view: View, field: Field, *, whole: bool) -> tuple[int, ...]:
    assignment = [UNUSED] * len(mesh.sizes)
    for label, axes in field.members():
        if label not in view.labels:
            raise axes.wrong(
                f"there is no label {quote(label)} to cut{suggest(label[:60], view.labels)}"
            )
        for axis in axes.items():
            if assignment[number := axis_number(mesh, axis)] != UNUSED:
                raise axis.wrong(f"axis {mesh.names[number]!r} is used twice")
            assignment[number] = view.labels.index(label)
    for k, (label, size) in enumerate(zip(view.labels, view.sizes, strict=True)):
        pieces = prod(n for n, chosen in zip(mesh.sizes, assignment, strict=True) if chosen == k)
        if pieces > size:
            raise field.wrong(f"label {label!r} of size {size} cannot be cut into {pieces}")
        for axis, chosen in enumerate(assignment):
            if whole and chosen == UNUSED and pieces * mesh.sizes[axis] <= size:
                raise field.wrong(f"axis {mesh.names[axis]!r} is left out, but could cut {label!r}")
    return tuple(assignment)


def _places(
    mesh: Mesh, vertex: Vertex, view: View, assignment: tuple[int, ...], field: Field
) -> tuple[int, ...]:
    """Where each summed axis ends: it cuts a dimension of the result or replicates it."""
    summed = [mesh.names[a] for a, label in enumerate(assignment) if label in view.aggregated]
    field.check_names(summed, "nothing is summed over")
    places = [0] * len(mesh.sizes)
    for name in summed:
        place = field[name]
        if place.value is not None and place.value not in vertex.labels:
            raise place.wrong(f"must be null or a label of {vertex}, not {quote(place.value)}")
        to = REPLICATED if place.value is None else vertex.labels.index(place.value)
        places[mesh.names.index(name)] = to
    return tuple(places)


def read_given(graph: Graph, mesh: Mesh, field: Field) -> dict[str, Cut]:
    """The layouts of pinned inputs."""
    given: dict[str, Cut] = {}
    for name, own in field.members():
        if name not in graph or not isinstance(graph[name].op, Input):
            raise own.wrong(f"the graph has no input {quote(name)}")
        given[name] = _cut(mesh, graph[name], own)
        for span, size in zip(given[name], graph[name].shape, strict=True):
            if (span.start, span.stop) != (0, size):
                raise own.wrong("an input's layout must cover all of it")
    return given


def _cut(mesh: Mesh, vertex: Vertex, field: Field) -> Cut:
    """A layout: one span for each dimension."""
    spans = field.items()
    if len(spans) != len(vertex.shape):
        raise field.wrong(f"{vertex} needs {len(vertex.shape)} spans, not {len(spans)}")
    used = 0
    cut: list[Any] = []
    for span, size in zip(spans, vertex.shape, strict=True):
        span.check_names(("axes", "inner", "start", "stop", "scale"))
        start = span["start"].whole(0, size)
        stop = span["stop"].whole(start, size)
        scale = span["scale"].whole(1, max(stop - start, 1))
        masks = [0, 0]
        for which, part in enumerate(("axes", "inner")):
            for axis in span[part].items():
                bit = 1 << axis_number(mesh, axis)
                if used & bit:
                    raise axis.wrong("is used twice")
                used |= bit
                masks[which] |= bit
        units, rest = divmod(stop - start, scale)
        if rest or parts_of(mesh, masks[0] | masks[1]) > max(units, 1):
            raise span.wrong(
                f"{stop - start} elements in blocks of {scale} cannot be cut like that"
            )
        cut.append(span_of(Dim(None, start, stop, scale), *masks))
    return tuple(cut)

"""Reads the decisions of a plan file: which axes cut which label, and where everything lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.errors import quote, suggest
from eindecomp.graph.ops import Input
from eindecomp.layout.cut import pieces_by, span_of
from eindecomp.layout.mesh import can_cut
from eindecomp.layout.view import Dim, is_planned, view_of
from eindecomp.planner.space.choices import (
    Decision,
    Layouts,
    Settled,
    choices,
    summed_axes,
    unused_axes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.cut import Cut, Span
    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.view import View
    from eindecomp.planner.space.choices import Assignment, Places
    from eindecomp.store.field import Field


def read_decisions(graph: Graph, mesh: Mesh, field: Field) -> dict[str, Decision]:
    """The decision of every planned vertex."""
    planned = [vertex for vertex in graph.vertices.values() if is_planned(vertex)]
    names = [vertex.name for vertex in planned]
    field.check_names(names, "the graph has no computed vertex")
    return {vertex.name: _decision(graph, mesh, vertex, field) for vertex in planned}


def check_divided(
    graph: Graph, mesh: Mesh, decisions: Mapping[str, Decision], field: Field
) -> None:
    """Check that decisions leave an axis unused only if it could not cut any label."""
    for name, decision in decisions.items():
        view = view_of(graph, graph[name])
        unused = unused_axes(mesh, decision.assignment)
        for label, size, axes in zip(view.labels, view.sizes, decision.assignment, strict=True):
            for axis, ways in enumerate(mesh.sizes):
                pieces = pieces_by(mesh, axes) * ways
                if unused >> axis & 1 and can_cut(mesh.pieces, size, pieces):
                    raise field[name]["assignment"].wrong(
                        f"axis {mesh.names[axis]!r} is left out, but could cut {label!r}"
                    )


def _decision(graph: Graph, mesh: Mesh, vertex: Vertex, fields: Field) -> Decision:
    field = fields[vertex.name]
    field.check_names(("assignment", "scattered", "further"))
    view = view_of(graph, vertex)
    assignment = _assignment(mesh, view, field["assignment"])
    places = _places(mesh, vertex, summed_axes(view, assignment), field["scattered"])
    every = Settled(places, (1 << len(mesh.sizes)) - 1)
    own = choices(view, mesh, (assignment,), every)
    if own.places[0, 0] != places:
        raise field["scattered"].wrong(f"{vertex} is too small to be cut like that")
    return Decision(assignment, places, own.homes[0], _further(mesh, vertex, field["further"]))


def _further(mesh: Mesh, vertex: Vertex, field: Field) -> Cut | None:
    """A second layout, if there is one."""
    return None if field.value is None else _cut(mesh, vertex, field, is_read=True)


def axis_number(mesh: Mesh, field: Field) -> int:
    """Which axis of the mesh a field names."""
    name = field.text()
    if name not in mesh.names:
        raise field.wrong(f"the mesh has no axis {quote(name)}{suggest(name, mesh.names)}")
    return mesh.names.index(name)


def _axes(mesh: Mesh, field: Field, used: set[int]) -> tuple[int, ...]:
    """A list of axes, none of which may have been used before."""
    axes: list[int] = []
    for axis in field.items():
        if (number := axis_number(mesh, axis)) in used:
            raise axis.wrong(f"axis {mesh.names[number]!r} is used twice")
        used.add(number)
        axes.append(number)
    return tuple(axes)


def _assignment(mesh: Mesh, view: View, field: Field) -> Assignment:
    """The axes of every label."""
    for label, axes in field.members():
        if label not in view.labels:
            known = suggest(label[:60], view.labels)
            raise axes.wrong(f"there is no label {quote(label)} to cut{known}")
    used: set[int] = set()
    given = {label: _axes(mesh, axes, used) for label, axes in field.members()}
    assignment = tuple(given.get(label, ()) for label in view.labels)
    for label, size, axes in zip(view.labels, view.sizes, assignment, strict=True):
        if not can_cut(mesh.pieces, size, pieces := pieces_by(mesh, axes)):
            equal = " equal pieces" if mesh.cuts_evenly else ""
            raise field.wrong(f"label {label!r} of size {size} cannot be cut into {pieces}{equal}")
    return assignment


def _places(mesh: Mesh, vertex: Vertex, summed: int, field: Field) -> Places:
    """The summed axes that cut each dimension of the result further; all others replicate it."""
    field.check_names((), f"{vertex} has no label", optional=vertex.labels)
    used = {axis for axis in range(len(mesh.sizes)) if not summed >> axis & 1}
    for _, axes in field.members():
        for axis in axes.items():
            if axis_number(mesh, axis) in used:
                raise axis.wrong("nothing is summed over this axis")
    used.clear()
    given = {label: _axes(mesh, axes, used) for label, axes in field.members()}
    return tuple(given.get(label, ()) for label in vertex.labels)


def read_given(graph: Graph, mesh: Mesh, field: Field) -> dict[str, Layouts]:
    """The layouts of inputs that have a home."""
    given: dict[str, Layouts] = {}
    for name, own in field.members():
        if name not in graph or not isinstance(graph[name].op, Input):
            raise own.wrong(f"the graph has no input {quote(name)}")
        own.check_names(("home", "further"))
        home = _cut(mesh, graph[name], own["home"])
        for span, size in zip(home, graph[name].shape, strict=True):
            if (span.start, span.stop) != (0, size):
                raise own["home"].wrong("an input's layout must cover all of it")
        given[name] = Layouts(home, _further(mesh, graph[name], own["further"]))
    return given


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

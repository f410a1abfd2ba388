"""The pins of a plan file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.store.decisions import axis_number

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.space.pin import Pins
    from eindecomp.store.field import Field


def read_pin(graph: Graph, mesh: Mesh, field: Field) -> Pins:
    """Pieces or axes for labels of tensors."""
    pins: Pins = {}
    for name, wanted in field.members():
        if name not in graph:
            raise wanted.wrong("the graph has no such tensor")
        pins[name] = {}
        for label, own in wanted.members():
            if label not in graph[name].labels:
                raise own.wrong(f"{graph[name]} has no such label")
            pins[name][label] = _pieces_or_axes(mesh, own)
    return pins


def _pieces_or_axes(mesh: Mesh, field: Field) -> int | tuple[str, ...]:
    if not isinstance(field.value, list):
        return field.whole(1)
    axes = [axis_number(mesh, axis) for axis in field.items()]
    if len(set(axes)) < len(axes):
        raise field.wrong("an axis appears twice")
    return tuple(mesh.names[a] for a in axes)

"""Vertices that are next to nothing: one thread computes them before another has woken up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.engines.threads.merge import Tile
from eindecomp.graph.work import operations
from eindecomp.lang.einsum import EinSum
from eindecomp.tra.tasks import Compute, Layout, Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.tra.boxes import Box

_TRIFLE = 50_000  # operations that one thread is done with before another has woken up
_SHARE = 1_000  # and that are to the whole program as one to this


def find_trifles(graph: Graph) -> set[str]:
    """The EinSums that are next to nothing, both beside the others and by themselves."""
    work = {
        vertex.name: max(operations(graph, vertex), vertex.elements)
        for vertex in graph.vertices.values()
        if isinstance(vertex.op, EinSum)
    }
    least = min(_TRIFLE, sum(work.values()) // _SHARE)
    return {name for name, operations in work.items() if operations < least}


def undivided(graph: Graph, vertex: Vertex, tasks: Sequence[Compute]) -> Tile:
    """The whole of a vertex as one tile: memory is shared, however it is cut."""
    reads = tuple(
        None if box is None else _all_of(graph[name].shape)
        for name, box in zip(vertex.inputs, tasks[0].reads, strict=True)
    )
    home = Store(vertex.name, Layout.HOME)
    devices = tuple(task.device for task in tasks)
    task = Compute(devices[0], vertex.name, reads, _all_of(vertex.shape), home)
    return Tile(task, devices)


def _all_of(shape: Sequence[int]) -> Box:
    return tuple((0, size) for size in shape)

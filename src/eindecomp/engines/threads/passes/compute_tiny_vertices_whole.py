"""Vertices that are next to nothing are one call: a thread is done before another has woken up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eindecomp.engines.threads.tiled import undivided
from eindecomp.graph.ops import Fill
from eindecomp.graph.work import operations
from eindecomp.lang.einsum import EinSum

if TYPE_CHECKING:
    from eindecomp.engines.threads.tiled import TiledProgram
    from eindecomp.graph.vertex import Vertex

_TINY = 50_000  # operations that one thread is done with before another has woken up
_SHARE = 1_000  # and that are to the whole program as one to this


def compute_tiny_vertices_whole(program: TiledProgram) -> TiledProgram:
    """The same program with each tiny vertex as one tile, however it was cut: memory is shared."""
    graph = program.graph
    work = {
        tiled.name: max(operations(graph, graph[tiled.name]), graph[tiled.name].elements)
        for tiled in program.vertices
        if isinstance(graph[tiled.name].op, EinSum)
    }
    least = min(_TINY, sum(work.values()) // _SHARE)
    tiny = {name for name, operations in work.items() if operations < least}
    tiny |= {each.name for each in program.vertices if _is_small_fill(graph[each.name])}
    vertices = (undivided(graph, v) if v.name in tiny else v for v in program.vertices)
    return replace(program, vertices=tuple(vertices))


def _is_small_fill(vertex: Vertex) -> bool:
    return isinstance(vertex.op, Fill) and vertex.elements < _TINY

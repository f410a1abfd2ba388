"""Programs that are over before another thread has woken up: each EinSum is one call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eindecomp.engines.threads.estimate import is_short
from eindecomp.engines.threads.tiled import undivided
from eindecomp.graph.ops import Fill
from eindecomp.lang.einsum import EinSum

if TYPE_CHECKING:
    from eindecomp.engines.threads.tiled import TiledProgram


def compute_short_programs_whole(program: TiledProgram) -> TiledProgram:
    """The same program with every EinSum as one tile, if one thread is to compute it anyway."""
    graph = program.graph
    if not is_short(graph, (tiled.name for tiled in program.vertices)):
        return program
    vertices = (
        undivided(graph, tiled) if isinstance(graph[tiled.name].op, EinSum | Fill) else tiled
        for tiled in program.vertices
    )
    return replace(program, vertices=tuple(vertices))

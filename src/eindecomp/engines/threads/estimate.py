"""About how long vertices take, to tell what is worth handing to another thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.engines.estimate import seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eindecomp.graph.graph import Graph

SHORT = 4e-4
"""Seconds of work below which one thread is done before two would be.

Until another one has woken up and works, under Python's lock, takes about half as long.
"""
BRIEF = 2e-2
"""Seconds below which it is worth something to hand tiles over without that lock.

The thread that does so hears of nothing else meanwhile.
"""
APART = 2e-5
"""Seconds of a vertex from which tiles of it at once are faster than all of it."""
TOGETHER = 3e-5
"""Seconds of a program from which it is worth calling other cores at all."""


def brief_seconds(graph: Graph, names: Iterable[str]) -> dict[str, float] | None:
    """About how long each of these vertices takes; None if they are not brief together."""
    seconds: dict[str, float] = {}
    total = 0.0
    for name in names:
        seconds[name] = seconds_of(graph, graph[name])
        total += seconds[name]
        if total >= BRIEF:
            return None
    return seconds

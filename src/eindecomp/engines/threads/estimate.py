"""About how long vertices take, to tell what is worth handing to another thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eindecomp.graph.ops import Fill, Gather
from eindecomp.graph.work import operations
from eindecomp.kernels.library import library_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex

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
_PRODUCTS, _LOOPS, _BYTES = 5e10, 2e9, 2e10  # operations and bytes a second of any core, about


def seconds_of(graph: Graph, vertex: Vertex) -> float:
    """About how long one core takes to compute a vertex."""
    reading = vertex.elements * vertex.dtype.itemsize
    # Of what rows are looked up in, as many are read as written.
    skipped = vertex.inputs[:1] if isinstance(vertex.op, Gather) else ()
    for name in vertex.inputs:
        if name in skipped:
            continue
        source = graph[name]
        reading += source.elements * source.dtype.itemsize
    work = operations(graph, vertex)
    # A loop is slower than memory from a few operations for each byte on; a product later.
    if isinstance(vertex.op, Fill) or work / _LOOPS < reading / _BYTES:
        return reading / _BYTES
    is_product = library_of(np.ndarray).kernel(graph, vertex).is_product
    return max(reading / _BYTES, work / (_PRODUCTS if is_product else _LOOPS))


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

"""About how long vertices take, to tell what is worth handing to another thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eindecomp.graph.ops import Fill
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
_PRODUCTS, _LOOPS, _BYTES = 5e10, 2e9, 2e10  # operations and bytes a second of any core, about


def seconds_of(graph: Graph, vertex: Vertex) -> float:
    """About how long one core takes to compute a vertex."""
    reading = vertex.elements * vertex.dtype.itemsize
    for name in vertex.inputs:
        source = graph[name]
        reading += source.elements * source.dtype.itemsize
    work = operations(graph, vertex)
    # A loop is slower than memory from a few operations for each byte on; a product later.
    if isinstance(vertex.op, Fill) or work / _LOOPS < reading / _BYTES:
        return reading / _BYTES
    is_product = library_of(np.ndarray).kernel(graph, vertex).is_product
    return max(reading / _BYTES, work / (_PRODUCTS if is_product else _LOOPS))


def is_short(graph: Graph, names: Iterable[str]) -> bool:
    """Whether one thread has computed all these vertices before two could have."""
    total = 0.0
    for name in names:
        total += seconds_of(graph, graph[name])
        if total >= SHORT:
            return False
    return True

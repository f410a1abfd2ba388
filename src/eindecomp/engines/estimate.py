"""About how long vertices take on one core, to tell what is worth handing to somebody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eindecomp.graph.ops import Fill, Gather
from eindecomp.graph.work import operations
from eindecomp.kernels.library import library_of

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex

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

"""The types in which partial results are held and travel until they are finished."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from eindecomp.lang.dtypes import concrete, widen
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import values
from eindecomp.lang.scalar_types import with_casts

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.dtypes import DType


def state_types(graph: Graph, vertex: Vertex) -> tuple[DType, ...]:
    """The types of one partial result of a vertex: one number, or a tuple of them.

    Low precision is rounded once, after the last sum: until then it is float32.
    """
    op = vertex.op
    agg = op.agg if isinstance(op, EinSum) else None
    if not isinstance(op, EinSum) or agg is None or (agg.finish is None and agg.width == 1):
        return (widen(vertex.dtype),)
    types = tuple(graph[name].dtype for name in vertex.inputs)
    return _state_types(op, types, tuple(graph.scalars.items()))


def state_bytes(graph: Graph, vertex: Vertex) -> int:
    """The bytes of one partial result: what travels where several devices sum."""
    return sum(dtype.itemsize for dtype in state_types(graph, vertex))


@lru_cache(maxsize=1 << 12)
def _state_types(
    op: EinSum, types: tuple[DType, ...], scalars: tuple[tuple[str, DType], ...]
) -> tuple[DType, ...]:
    assert op.agg is not None  # noqa: S101 - only aggregations have partial results
    known = dict(scalars)
    joined = [with_casts(value, types, known)[1] for value in values(op.join)]
    return tuple(widen(concrete(t)) for t in op.agg.state_types(joined, known))

"""How many scalar operations vertices take: what objectives predict and engines report."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from eindecomp.graph.ops import ScatterAdd
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import Call, Expr, values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.ops import Op
    from eindecomp.graph.vertex import Vertex


@lru_cache(maxsize=2**12)
def operations_per_point(op: Op) -> int:
    """Operations for each point of the label space, those that only move data counting nothing.

    They are the distinct function calls of the join and of the aggregation's combination, whatever
    the function: 2 for a product that is summed.
    """
    match op:
        case EinSum():
            combine = () if op.agg is None else values(op.agg.combine)
            return _distinct_calls(values(op.join)) + _distinct_calls(combine)
        case ScatterAdd():
            return 1
        case _:
            return 0


def operations(graph: Graph, vertex: Vertex) -> int:
    """All scalar operations of a vertex.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> graph = parse("input X[i: 2, j: 3], Y[j, k: 4]\\nZ[i,k] <- sum X[i,j] * Y[j,k]\\noutput Z")
    >>> operations(graph, graph["Z"])
    48
    """
    each = operations_per_point(vertex.op)
    return each * prod(_sizes(graph, vertex).values()) if each else 0


def _sizes(graph: Graph, vertex: Vertex) -> dict[str, int]:
    """The sizes of the labels that a vertex goes through."""
    if not isinstance(vertex.op, ScatterAdd):
        return graph.label_sizes(vertex)
    rows, index = (graph[name] for name in vertex.inputs)
    return rows.sizes_by(vertex.op.source) | index.sizes_by(vertex.op.index)


def _distinct_calls(exprs: Iterable[Expr]) -> int:
    seen: set[Expr] = set()
    left = list(exprs)
    while left:
        expr = left.pop()
        if isinstance(expr, Call) and expr not in seen:
            seen.add(expr)
            left += expr.args
    return len(seen)

"""Simplifying the scalar expressions of all vertices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.dtypes import INT64
from eindecomp.lang.einsum import EinSum, make_einsum
from eindecomp.lang.scalar import used_args
from eindecomp.lang.simplify import simplify

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.lang.dtypes import DType


def simplify_joins(graph: Graph) -> Graph:
    """Fold literals and drop operations without effect, keeping every vertex and its type.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> print(simplify_joins(parse("input X[i: 3]\\nZ[i] <- X[i] / sqrt(64) * 1\\noutput Z")))
    input X[i: 3]
    Z[i] <- X[i] / 8.0
    output Z
    """
    types = {name: vertex.dtype for name, vertex in graph.vertices.items()}
    vertices = (_simplified(vertex, types, graph) for vertex in graph.vertices.values())
    return Graph.of(vertices, [v.name for v in graph.outputs], graph.scalars, ties=graph.ties)


def _simplified(vertex: Vertex, types: Mapping[str, DType], graph: Graph) -> Vertex:
    match vertex.op:
        case EinSum() as op:
            args = [types[name] for name in vertex.inputs]
            join = simplify(op.join, args, graph.scalars)
            # An input that is no longer read would change which labels the vertex has.
            if join == op.join or used_args(join) != used_args(op.join):
                return vertex
            return replace(vertex, op=make_einsum(op.inputs, op.output, join, op.agg))
        case Fill(output, value) as op:
            args = [INT64] * len(output)
            return replace(vertex, op=replace(op, value=simplify(value, args, graph.scalars)))
        case _:
            return vertex

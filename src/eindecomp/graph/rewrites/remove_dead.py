"""Removing vertices that no output needs."""

from __future__ import annotations

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input


def remove_dead(graph: Graph) -> Graph:
    """Keep the outputs, what they are made from, and all inputs: those are the caller's interface.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> print(remove_dead(parse("input X[i: 3]\\nY[i] <- exp(X[i])\\nZ[i] <- -X[i]\\noutput Z")))
    input X[i: 3]
    Z[i] <- -X[i]
    output Z
    """
    alive = {vertex.name for vertex in graph.outputs}
    for vertex in reversed(list(graph.vertices.values())):
        if vertex.name in alive:
            alive.update(vertex.inputs)
    kept = (v for v in graph.vertices.values() if v.name in alive or isinstance(v.op, Input))
    return Graph.of(kept, [v.name for v in graph.outputs], graph.scalars, ties=graph.ties)

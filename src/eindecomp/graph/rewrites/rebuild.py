"""What rewrites share: copying vertices while their inputs change, and dropping dead ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.einsum import EinSum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def empty_like(graph: Graph) -> Graph:
    """A graph with the same scalars and no vertex yet, whose fresh names avoid those of `graph`."""
    return Graph.of((), (), graph.scalars, avoid=graph.vertices)


def end_like(graph: Graph, made: Graph) -> None:
    """Give a rebuilt graph the outputs and the ties of the one that it was made of."""
    made.end((vertex.name for vertex in graph.outputs), graph.ties)


def copy_vertex(
    vertex: Vertex,
    into: Graph,
    renamed: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Vertex:
    """Add a vertex to another graph, reading renamed inputs."""
    if not renamed and name is None:
        return into.append(vertex)
    name = name or vertex.name
    inputs = [(renamed or {}).get(i, i) for i in vertex.inputs]
    match vertex.op:
        case Input():
            return into.append(vertex)
        case EinSum(labels, output, join, agg):
            operands = list(zip(inputs, labels, strict=True))
            return into.add_einsum(output, operands, join, agg, name, vertex.sizes)
        case op:
            return into.add(op, inputs, name, vertex.sizes)


def rebuilt(graph: Graph, put: Callable[[Vertex, Graph], bool]) -> Graph:
    """The graph with some vertices replaced: `put` adds what replaces one, and says whether."""
    made = empty_like(graph)
    for vertex in graph.vertices.values():
        if not put(vertex, made):
            copy_vertex(vertex, made)
    end_like(graph, made)
    return made


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

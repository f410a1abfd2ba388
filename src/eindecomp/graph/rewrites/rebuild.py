"""Rebuilding a graph: what rewrites share, and the rewrites that only tidy up.

Those drop dead vertices, simplify joins, and merge vertices that are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import lru_cache

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill, Input, Op, relabel
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.windows import with_windows_apart
from eindecomp.lang.dtypes import INT64
from eindecomp.lang.einsum import EinSum, make_einsum
from eindecomp.lang.scalar import Arg, used_args
from eindecomp.lang.simplify import simplify


def rebuilt(graph: Graph, put: Callable[[Vertex, Graph], bool]) -> Graph:
    """The graph with some vertices replaced: `put` adds what replaces one, if anything does.

    Fresh names avoid those of the graph.
    """
    made = Graph.of((), (), graph.scalars, avoid=graph.vertices)
    for vertex in graph.vertices.values():
        if not put(vertex, made):
            made.append(vertex)
    made.end((vertex.name for vertex in graph.outputs), graph.ties)
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


def simplify_joins(graph: Graph) -> Graph:
    """Fold literals and drop operations without effect, keeping every vertex and its type.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> print(simplify_joins(parse("input X[i: 3]\\nZ[i] <- X[i] / sqrt(64) * 1\\noutput Z")))
    input X[i: 3]
    Z[i] <- X[i] / 8.0
    output Z
    """
    vertices = (_simplified(vertex, graph) for vertex in graph.vertices.values())
    return Graph.of(vertices, [v.name for v in graph.outputs], graph.scalars, ties=graph.ties)


def _simplified(vertex: Vertex, graph: Graph) -> Vertex:
    match vertex.op:
        case EinSum() as op:
            args = [graph[name].dtype for name in vertex.inputs]
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


@with_windows_apart
def merge_common(graph: Graph) -> Graph:
    """Compute equal vertices once, even if their labels have other names.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "A[i] <- exp(X[i])\\nB[j] <- exp(X[j])\\nC[k] <- A[k] + B[k]\\noutput C"
    >>> print(merge_common(parse("input X[i: 3]\\n" + text)))
    input X[i: 3]
    A[i] <- exp(X[i])
    C[k] <- A[k] + A[k]
    output C
    """
    first, outputs = equal_vertices(graph)
    wanted = {vertex.name for vertex in graph.outputs}
    renamed: dict[str, str] = {}

    def put(vertex: Vertex, merged: Graph) -> bool:
        name, labels = vertex.name, vertex.labels
        if first[name] == name:
            # The class has the name of an output, if one is in it.
            renamed[name] = outputs.get(name, name)
            _add_renamed(vertex, merged, renamed)
        else:
            renamed[name] = renamed[first[name]]
            if name in wanted and name != renamed[name]:
                merged.add_einsum(labels, [(renamed[name], labels)], Arg(0), name=name)
        return True

    return rebuilt(graph, put)


def _add_renamed(vertex: Vertex, into: Graph, renamed: Mapping[str, str]) -> None:
    """Add a vertex to another graph, under another name and reading renamed inputs."""
    name, inputs = renamed[vertex.name], tuple(renamed[source] for source in vertex.inputs)
    if isinstance(vertex.op, EinSum):  # operands that have become equal are one
        operands = list(zip(inputs, vertex.op.inputs, strict=True))
        op = vertex.op
        into.add_einsum(op.output, operands, op.join, op.agg, name, vertex.sizes)
    else:
        into.append(replace(vertex, name=name, inputs=inputs))


def equal_vertices(graph: Graph) -> tuple[dict[str, str], dict[str, str]]:
    """For every vertex the first one equal to it; for those the first output among its equals."""
    first: dict[str, str] = {}
    seen: dict[Hashable, str] = {}
    outputs: dict[str, str] = {}
    is_output = {vertex.name for vertex in graph.outputs}
    for name, vertex in graph.vertices.items():
        inputs = tuple(first[source] for source in vertex.inputs)
        key = (_with_labels_by_place(vertex.op), inputs, vertex.shape)
        equal = name if isinstance(vertex.op, Input) else seen.setdefault(key, name)
        first[name] = equal
        if name in is_output:
            outputs.setdefault(equal, name)
    return first, outputs


# Models repeat the same operations in every layer.
@lru_cache(maxsize=2**12)
def _with_labels_by_place(op: Op) -> Op:
    """The same operation with labels that say only where they first stand."""
    names: dict[str, str] = {}

    def rename(label: str) -> str:
        return names.setdefault(label, f"_{len(names)}")

    return relabel(op, rename)

"""Merging vertices that compute the same thing."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input, Op, relabel
from eindecomp.graph.rewrites.rebuild import copy_vertex, empty_like, end_like
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.scalar import Arg

if TYPE_CHECKING:
    from collections.abc import Mapping

Key = tuple[Op, tuple[str, ...], tuple[int, ...]]


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
    first, outputs = _classes(graph)
    merged = empty_like(graph)
    renamed: dict[str, str] = {}
    for vertex in graph.vertices.values():
        name = vertex.name
        if first[name] == name:
            # The class has the name of an output, if one is in it.
            renamed[name] = outputs.get(name, name)
            copy_vertex(vertex, merged, renamed, renamed[name])
        else:
            renamed[name] = renamed[first[name]]
    for vertex in graph.outputs:
        if vertex.name not in merged:
            operand = (renamed[vertex.name], vertex.labels)
            merged.add_einsum(vertex.labels, [operand], Arg(0), name=vertex.name)
    end_like(graph, merged)
    return merged


def _classes(graph: Graph) -> tuple[dict[str, str], dict[str, str]]:
    """For every vertex the first one equal to it; for those the first output among its equals."""
    first: dict[str, str] = {}
    seen: dict[Key, str] = {}
    outputs: dict[str, str] = {}
    is_output = {vertex.name for vertex in graph.outputs}
    for name, vertex in graph.vertices.items():
        equal = name if isinstance(vertex.op, Input) else seen.setdefault(_key(vertex, first), name)
        first[name] = equal
        if name in is_output:
            outputs.setdefault(equal, name)
    return first, outputs


def _key(vertex: Vertex, first: Mapping[str, str]) -> Key:
    inputs = tuple(first[name] for name in vertex.inputs)
    return _with_labels_by_place(vertex.op), inputs, vertex.shape


# Models repeat the same operations in every layer.
@lru_cache(maxsize=2**12)
def _with_labels_by_place(op: Op) -> Op:
    """The same operation with labels that say only where they first stand."""
    names: dict[str, str] = {}

    def rename(label: str) -> str:
        return names.setdefault(label, f"_{len(names)}")

    return relabel(op, rename)

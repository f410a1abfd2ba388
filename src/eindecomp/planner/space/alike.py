"""Vertices that are alike, as those of equal layers are: they compute the same from the same.

In a model of many equal layers, a good plan treats most of them alike. A search in which those
choose together has as many choices as one layer has, however many layers there are.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eindecomp.graph.ops import Fill
from eindecomp.layout.view import view_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.space.layout_rules import LayoutRules


def alike_vertices(graph: Graph, rules: LayoutRules, far: int) -> dict[str, str]:
    """For each vertex and input the first that looks the same, up to so many steps away.

    At least 1: what a vertex can choose depends on what it reads.

    >>> import eindecomp as ed
    >>> from eindecomp.planner.space.layout_rules import LayoutRules
    >>> lines = [f"X{k + 1}[i] <- exp(X{k}[i])" for k in range(6)]
    >>> graph = ed.parse("\\n".join(["input X0[i: 8]", *lines, "output X6"]))
    >>> alike_vertices(graph, LayoutRules(), 1)
    {'X0': 'X0', 'X1': 'X1', 'X2': 'X2', 'X3': 'X2', 'X4': 'X2', 'X5': 'X5', 'X6': 'X6'}
    """
    made_for = {result: name for name, result in rules.tie.items()}
    readers: dict[str, list[tuple[str, int]]] = {name: [] for name in graph.vertices}
    for vertex in graph.vertices.values():
        dims = () if isinstance(vertex.op, Fill) else view_of(graph, vertex).reads
        for k, (name, read) in enumerate(zip(vertex.inputs, dims, strict=True)):
            if read is not None:
                readers[name].append((vertex.name, k))
    kinds = _numbered({
        name: (_kind(graph, rules, vertex), len(readers[name]))
        for name, vertex in graph.vertices.items()
    })  # fmt: skip
    for _ in range(far):
        kinds = _numbered({
            name: (
                kind,
                tuple(kinds[source] for source in graph[name].inputs),
                frozenset(Counter((kinds[each], k) for each, k in readers[name]).items()),
                kinds.get(rules.tie.get(name, "")),
                kinds.get(made_for.get(name, "")),
            )
            for name, kind in kinds.items()
        })  # fmt: skip
    first: dict[int, str] = {}
    return {name: first.setdefault(kind, name) for name, kind in kinds.items()}


def _kind(graph: Graph, rules: LayoutRules, vertex: Vertex) -> Hashable:
    """What a vertex is by itself."""
    return (
        type(vertex.op),
        vertex.shape if isinstance(vertex.op, Fill) else view_of(graph, vertex),
        vertex.dtype,
        vertex in graph.outputs,
        rules.pinned.get(vertex.name),
        vertex.name in rules.tie,
        vertex.name in rules.gathered,
    )


def _numbered(kinds: Mapping[str, Hashable]) -> dict[str, int]:
    """Equal numbers for equal kinds."""
    numbers: dict[Hashable, int] = {}
    return {name: numbers.setdefault(kind, len(numbers)) for name, kind in kinds.items()}

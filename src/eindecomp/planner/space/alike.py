"""What is alike, and need be considered only once: vertices of equal layers, labels of a vertex.

In a model of many equal layers, a good plan treats most of them alike. A search in which those
choose together has as many choices as one layer has, however many layers there are.

If no tensor that other vertices make or read has a label, no other vertex sees how it is cut. In a
sum over thirty labels of an input, it makes no difference which six of them are cut in two.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eindecomp.graph.ops import Fill
from eindecomp.layout.view import is_planned, view_of
from eindecomp.planner.space.layout_rules import LayoutRules

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.view import Dims, View
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


Groups = tuple[tuple[int, ...], ...]


def interchangeable_labels(graph: Graph, rules: LayoutRules | None = None) -> dict[str, Groups]:
    """For each vertex, its groups of two or more interchangeable labels; an input has none.

    >>> import eindecomp as ed
    >>> graph = ed.parse("input X[i: 8, j: 8, k: 4]\\nS[] <- sum X[i,j,k]\\noutput S")
    >>> interchangeable_labels(graph)
    {'X': (), 'S': ((0, 1),)}
    """
    rules = LayoutRules() if rules is None else rules
    planned = [vertex for vertex in graph.vertices.values() if is_planned(vertex)]
    made = {vertex.name for vertex in planned}
    reads = Counter(name for vertex in planned for name in vertex.inputs)
    shared = (made & reads.keys()).union(rules.pinned, rules.tie, rules.tie.values())
    # The home of an input that only one vertex reads can follow whatever that one does.
    shared |= {v.name for v in graph.inputs if reads[v.name] > 1 and rules.has_home(v)}
    groups: dict[str, Groups] = {vertex.name: () for vertex in graph.inputs}
    return groups | {v.name: _groups(v, view_of(graph, v), shared) for v in planned}


def _groups(vertex: Vertex, view: View, shared: Collection[str]) -> Groups:
    tensors: list[tuple[str, Dims]] = [
        (name, dims)
        for name, dims in zip(vertex.inputs, view.reads, strict=True)
        if dims is not None
    ]
    tensors.append((vertex.name, view.output))
    groups: dict[object, list[int]] = {}
    for i, label in enumerate(view.labels):
        dims = [[d for d in own if d.label == label] for _, own in tensors]
        if any(own and name in shared for (name, _), own in zip(tensors, dims, strict=True)):
            continue
        kind = tuple(tuple(sorted((d.start, d.stop, d.scale) for d in own)) for own in dims)
        groups.setdefault((view.sizes[i], kind), []).append(i)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)

"""Labels of one vertex that can be interchanged without any other vertex noticing.

If no tensor that other vertices make or read has a label, no other vertex sees how it is cut. In a
sum over thirty labels of an input, it makes no difference which six of them are cut in two.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eindecomp.layout.view import is_planned, view_of
from eindecomp.planner.space.layout_rules import LayoutRules

if TYPE_CHECKING:
    from collections.abc import Collection

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.view import Dims, View

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

"""Labels that stand for several: dimensions that are split, or were merged, somewhere in a graph.

A projection to all heads has one dimension, which a reshape splits into heads and their features:
whoever cuts heads means that dimension too, which cut in as many pieces has the same blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.graph.ops import Reshape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.graph.graph import Graph


def with_merged(graph: Graph, labels: Sequence[str]) -> tuple[str, ...]:
    """Labels, and after each those of the dimensions that it is the outermost factor of.

    >>> import eindecomp as ed
    >>> text = "input X[s: 4, hd: 6]\\nZ[s,h,d] <- X[s, (h: 2, d)]\\noutput Z"
    >>> with_merged(ed.parse(text), ["h", "s"])
    ('h', 'hd', 's')
    """
    merged = _merged_labels(graph)
    found: dict[str, None] = {}
    waiting = [*reversed(labels)]
    while waiting:
        label = waiting.pop()
        if label not in found:
            found[label] = None
            waiting += reversed([own for own in merged.get(label, ()) if own not in labels])
    return tuple(found)


def _merged_labels(graph: Graph) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for vertex in graph.vertices.values():
        if isinstance(op := vertex.op, Reshape):
            source = graph[vertex.inputs[0]]
            pairs = [
                *zip(source.labels, op.input, strict=True),
                *zip(vertex.labels, op.groups, strict=True),
            ]
            for label, group in pairs:
                if len(group) > 1 and label != group[0]:
                    found.setdefault(group[0], []).append(label)
    return found

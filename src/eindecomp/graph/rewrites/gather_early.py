"""Gathering a few rows before slicing them, rather than slicing a large table first."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, TypeVar

from eindecomp.graph.ops import Gather, Slice
from eindecomp.graph.rewrites.rebuild import copy_vertex, empty_like, end_like

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.einsum import Labels

T = TypeVar("T")
Window = tuple[int, int] | int | None


def gather_early(graph: Graph) -> Graph:
    """Exchange gathers and the slices they read where fewer elements are made.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "S[v,a] <- T[v, a in 0:2]\\nZ[b,a] <- S[ids[b], a]\\noutput Z"
    >>> print(gather_early(parse("input T[v: 99, a: 9], ids[b: 3] int32\\n" + text)))
    input T[v: 99, a: 9]
    input ids[b: 3] int32
    S[v,a] <- T[v, a in 0:2]
    Z_1[b,a] <- T[ids[b], a]
    Z[b,a] <- Z_1[b, a in 0:2]
    output Z
    """
    made = empty_like(graph)
    for vertex in graph.vertices.values():
        if not _exchanged(vertex, made):
            copy_vertex(vertex, made)
    end_like(graph, made)
    return made


def _exchanged(vertex: Vertex, graph: Graph) -> bool:
    """Add a gather and then a slice in the place of a vertex, if that is the better order."""
    op = vertex.op
    cut = graph[vertex.inputs[0]] if isinstance(op, Gather) else None
    if not isinstance(op, Gather) or cut is None or not isinstance(cut.op, Slice):
        return False
    source = graph[cut.inputs[0]]
    kept = [k for k, window in enumerate(cut.op.ranges) if not isinstance(window, int)]
    axis = kept[op.axis]
    labels = _labels(op, cut.op, axis)
    windows: dict[str, Window] = {
        label: window
        for label, window in zip(labels, _without(cut.op.ranges, axis), strict=True)
        if window is not None
    }
    # Where a row is looked up along what is cut, or its place depends on that, the order matters.
    if cut.op.ranges[axis] is not None or set(windows) & set(op.index):
        return False
    sizes = vertex.sizes | dict(zip(labels, _without(source.shape, axis), strict=True))
    output = (*op.output, *(label for label in labels if label not in op.output))
    if prod(sizes[label] for label in output) >= cut.elements:
        return False
    name = graph.fresh(f"{vertex.name}_1")
    graph.add(Gather(labels, axis, op.index, output), [source.name, vertex.inputs[1]], name)
    graph.add(Slice(op.output, tuple(windows.get(t) for t in output)), [name], vertex.name)
    return True


def _labels(op: Gather, cut: Slice, axis: int) -> Labels:
    """A label for every dimension of the table but the one that is looked up."""
    own = iter(op.table)
    taken = {*op.table, *op.index, *op.output}
    free = (label for k in range(10**6) if (label := f"gone{k}") not in taken)
    return tuple(
        next(free) if isinstance(window, int) else next(own)
        for window in _without(cut.ranges, axis)
    )


def _without(items: tuple[T, ...], place: int) -> tuple[T, ...]:
    return (*items[:place], *items[place + 1 :])

"""How an operation can be cut: one uniform view of every kind of vertex.

Cutting a label cuts every dimension that carries it, of the inputs and of the output alike. A
dimension that cannot be cut (the one a gather looks up, the one a concat grows along) carries no
label and is read whole, or, by a slice, as a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Concat, Fill, Gather, Input, Op, Reshape, ScatterAdd, Slice
from eindecomp.graph.vertex import Shape, Vertex
from eindecomp.lang.einsum import EinSum, Labels, Sizes
from eindecomp.lang.scalar import used_args

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Dim:
    """A dimension as an operation sees it.

    With a label, unit k of the label covers elements `k * scale` to `(k + 1) * scale`. Without one
    it is `start:stop` on every device.
    """

    label: str | None
    start: int
    stop: int
    scale: int = 1


Dims = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class NamedRows:
    """The rows of a table that an index names: the first operand's, or those of a result.

    A row is all that has one place along the looked-up dimension and the labels that the table and
    the index share. A tile names at most one row for each element of its piece of the index.
    """

    is_result: bool
    axis: int
    index: Labels
    dims: tuple[str | None, ...]
    """The label of each dimension of the table, None for the one that is looked up."""

    @property
    def elements(self) -> Labels:
        """The labels over which a tile's rows have one element each, at most."""
        own = (label for label in self.dims if label is not None)
        return tuple(dict.fromkeys((*self.index, *own)))

    @property
    def across(self) -> tuple[int, ...]:
        """The dimensions of the table that lie within a row."""
        dims = enumerate(self.dims)
        return tuple(d for d, label in dims if d != self.axis and label not in self.index)

    @property
    def along(self) -> tuple[int, ...]:
        """The dimensions that number rows: the one that is looked up, and those shared."""
        return tuple(d for d in range(len(self.dims)) if d not in self.across)


class Way(NamedTuple):
    """Operands that a vertex can read together in parts, before ⊕ has combined them."""

    operands: tuple[int, ...]
    agg: str
    """The name of ⊕."""


@dataclass(frozen=True, slots=True)
class View:
    """The labels that can be cut with their sizes, and the dimensions that carry them.

    Ways to read operands in parts are labels that no dimension carries, behind all others: axes
    given to one cut nothing. Their sizes are the most devices that may do that.
    """

    labels: Labels
    sizes: tuple[int, ...]
    reads: tuple[Dims | None, ...]
    """For each input its dimensions, or None for one whose elements are never read."""
    output: Dims
    named: NamedRows | None = None
    """For a lookup or a scatter, the rows that its index names."""
    ways: tuple[Way, ...] = ()
    stays: str = ""
    """The ⊕ of the result's parts, if the result may stay pending."""
    turn: str = ""
    """The label that is divided into turns: nothing but itself cuts its dimension of the result."""

    @property
    def cut_labels(self) -> Labels:
        """The labels that cut something."""
        return self.labels[: len(self.labels) - len(self.ways)]

    @property
    def cut_sizes(self) -> tuple[int, ...]:
        """Their sizes."""
        return self.sizes[: len(self.labels) - len(self.ways)]

    @property
    def way_sizes(self) -> tuple[int, ...]:
        """The most devices that may read parts in each way."""
        return self.sizes[len(self.labels) - len(self.ways) :]

    def waiting(self, ways: tuple[Way, ...], most: int, stays: str) -> View:
        """The same with ways to read operands in parts, among so many devices at most."""
        labels = (*self.cut_labels, *(f"⊕{i}" for i in range(len(ways))))
        sizes = (*self.cut_sizes, *[most] * len(ways))
        return replace(self, labels=labels, sizes=sizes, ways=ways, stays=stays)

    @property
    def aggregated(self) -> tuple[int, ...]:
        """Which labels are not in the output, those of ways among them."""
        kept = {dim.label for dim in self.output}
        return tuple(i for i, label in enumerate(self.labels) if label not in kept)

    def index(self, dim: Dim) -> int | None:
        """Which label a dimension carries."""
        return None if dim.label is None else self.labels.index(dim.label)


def is_planned(vertex: Vertex) -> bool:
    """Whether a vertex is computed by tiles; inputs are given, fills generated where read."""
    return not isinstance(vertex.op, Input | Fill)


def view_of(graph: Graph, vertex: Vertex) -> View:
    """The view of a planned vertex, or of an input: the ways in which it can lie."""
    shapes = tuple(graph[name].shape for name in vertex.inputs)
    return _view_of(vertex.op, shapes, vertex.shape)


def planned_views(graph: Graph) -> list[tuple[str, View]]:
    """The vertices that are planned, by name, with their views."""
    return [(v.name, view_of(graph, v)) for v in graph.vertices.values() if is_planned(v)]


@lru_cache(maxsize=1 << 12)
def _view_of(op: Op, shapes: tuple[Shape, ...], shape: Shape) -> View:
    made = dict(zip(op.output, shape, strict=True))
    match op:
        case EinSum():
            sizes = _label_sizes((*op.inputs, op.output), (*shapes, shape))
            read = len(used_args(op.join))
            pairs = enumerate(zip(op.inputs, shapes, strict=True))
            reads = [_plain(*pair) if k < read else None for k, pair in pairs]
            return _view(op.labels, sizes, reads, _plain(op.output, shape))
        case Gather():
            table: list[str | None] = list(op.table)
            table.insert(op.axis, None)
            reads = [_plain(table, shapes[0]), _plain(op.index, shapes[1])]
            named = NamedRows(False, op.axis, op.index, tuple(table))
            return _naming(named, _view(op.output, made, reads, _plain(op.output, shape)))
        case ScatterAdd():
            output = [None if label == op.row_label else label for label in op.output]
            reads = [_plain(op.source, shapes[0]), _plain(op.index, shapes[1])]
            sizes = _label_sizes((op.source, op.index), shapes)
            named = NamedRows(True, op.axis, op.index, tuple(output))
            return _naming(named, _view(tuple(sizes), sizes, reads, _plain(output, shape)))
        case Concat():
            kept = [None if label == op.along else label for label in op.output]
            reads = [_plain(kept, shape) for shape in shapes]
            return _view(op.output, made, reads, _plain(kept, shape))
        case Slice():
            pairs = zip(op.input, op.ranges, strict=True)
            carried = [label if window is None else None for label, window in pairs]
            windows = zip(carried, op.windows(shapes[0]), strict=True)
            reads = [tuple(Dim(label, *window) for label, window in windows)]
            output = [label if label in carried else None for label in op.output]
            return _view(op.output, made, reads, _plain(output, shape))
        case Reshape():
            return _reshape(op)
        case Input():
            return _view(op.output, made, [], _plain(op.output, shape))
        case Fill():
            raise AssertionError("fills are generated where they are read")


def _label_sizes(tensors: tuple[Labels, ...], shapes: tuple[Shape, ...]) -> dict[str, int]:
    pairs = (zip(labels, shape, strict=True) for labels, shape in zip(tensors, shapes, strict=True))
    return dict(label_and_size for pair in pairs for label_and_size in pair)


def _plain(labels: Labels | list[str | None], shape: tuple[int, ...]) -> Dims:
    return tuple(Dim(label, 0, size) for label, size in zip(labels, shape, strict=True))


def _view(labels: Labels, sizes: Sizes, reads: Sequence[Dims | None], output: Dims) -> View:
    """The view over the labels that some dimension carries; a label of size 0 cannot be cut."""
    empty = {label for label in labels if sizes[label] == 0}
    if empty:
        reads = [_without(empty, dims) for dims in reads]
        output = _without(empty, output) or ()
    carried = {dim.label for dims in (*reads, output) for dim in dims or ()}
    kept = tuple(label for label in labels if label in carried)
    return View(kept, tuple(sizes[label] for label in kept), tuple(reads), output)


def _naming(named: NamedRows, view: View) -> View:
    """The view of a lookup or a scatter; where a label has size 0, no row is named."""
    return replace(view, named=named) if {*named.elements} <= {*view.labels} else view


def _without(labels: set[str], dims: Dims | None) -> Dims | None:
    if dims is None:
        return None
    return tuple(replace(dim, label=None) if dim.label in labels else dim for dim in dims)


def _reshape(op: Reshape) -> View:
    """A label can be cut if it is outermost in its groups: then a piece of it is one block."""
    sizes = dict(op.sizes)
    outermost = {g[0] for g in op.input} & {g[0] for g in op.groups}

    def dims(groups: tuple[Labels, ...]) -> Dims:
        made: list[Dim] = []
        for group in groups:
            size = prod(sizes[label] for label in group)
            head = group[0] if group[0] in outermost and size else None
            made.append(Dim(head, 0, size, size // max(sizes[group[0]], 1) if head else 1))
        return tuple(made)

    labels = tuple(label for label in sizes if label in outermost)
    return _view(labels, sizes, [dims(op.input)], dims(op.groups))


def dim_parts(view: View, dims: Dims, parts: Ints) -> Ints:
    """The number of pieces of each dimension, one row per partition vector.

    Vectors may have numbers for several levels of a mesh, along a third axis.
    """
    pieces = np.ones((len(parts), len(dims), *parts.shape[2:]), dtype=np.int64)
    for d, dim in enumerate(dims):
        if (i := view.index(dim)) is not None:
            pieces[:, d] = parts[:, i]
    return pieces


def tile_sides(dims: Dims, pieces: Ints) -> Ints:
    """The sides of the largest tile, one row per partition vector."""
    units = np.array([(d.stop - d.start) // d.scale for d in dims], dtype=np.int64)
    scale = np.array([d.scale for d in dims], dtype=np.int64)
    return -(-units // pieces) * scale

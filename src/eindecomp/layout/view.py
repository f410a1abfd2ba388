"""How an operation can be cut: one uniform view of every kind of vertex.

Cutting a label cuts every dimension that carries it, of the inputs and of the output alike. A
dimension that cannot be cut (the one a gather looks up) carries no label and is read whole. One
that is read at computed places carries no label either: of it a tile reads the image of its box.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Concat, Fill, Gather, Input, Op, Reshape, ScatterAdd, Window
from eindecomp.graph.vertex import Shape, Vertex
from eindecomp.lang.einsum import EinSum, Labels, Sizes
from eindecomp.lang.index import CLAMP
from eindecomp.lang.scalar import used_args

Ints = NDArray[np.int64]


class Image(NamedTuple):
    """The places at which a dimension is read: (Σ times · label + offset) / divisor, as far as
    they lie within its size; with `clamps`, those beyond an end read the last element there."""

    terms: tuple[tuple[str, int, int], ...]
    """Each label that moves the place, how many times, and its size."""
    offset: int
    divisor: int
    size: int
    clamps: bool = False


@dataclass(frozen=True, slots=True)
class Dim:
    """A dimension as an operation sees it.

    With a label, unit k of the label covers elements `k * scale` to `(k + 1) * scale`. Without one
    it is `start:stop` on every device, or, of an image, what the device's places reach of that.
    """

    label: str | None
    start: int
    stop: int
    scale: int = 1
    image: Image | None = None

    @property
    def labels(self) -> Labels:
        """The label that it carries, or those that move its image."""
        own = () if self.label is None else (self.label,)
        return own if self.image is None else tuple(label for label, _, _ in self.image.terms)


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

    def along(self, dim: Dim) -> int | None:
        """Which label cuts a dimension, or most of its image."""
        if dim.image is None:
            return self.index(dim)
        terms = [term for term in dim.image.terms if term[0] in self.labels]
        most = max(terms, key=lambda term: abs(term[1]) * term[2], default=None)
        return None if most is None else self.labels.index(most[0])


def is_planned(vertex: Vertex) -> bool:
    """Whether a vertex is computed by tiles; inputs are given, fills generated where read."""
    return not isinstance(vertex.op, Input | Fill)


def view_of(graph: Graph, vertex: Vertex) -> View:
    """The view of a planned vertex, or of an input: the ways in which it can lie."""
    shapes = tuple(graph[name].shape for name in vertex.inputs)
    return _view_of(vertex.op, shapes, vertex.shape, vertex.windows)


def planned_views(graph: Graph) -> list[tuple[str, View]]:
    """The vertices that are planned, by name, with their views."""
    return [(v.name, view_of(graph, v)) for v in graph.vertices.values() if is_planned(v)]


@lru_cache(maxsize=1 << 12)
def _view_of(
    op: Op, shapes: tuple[Shape, ...], shape: Shape, windows: tuple[Window | None, ...]
) -> View:
    made = dict(zip(op.output, shape, strict=True))
    match op:
        case EinSum():
            windows = windows or (None,) * len(shapes)
            pairs = list(zip(shapes, windows, strict=True))
            seen = tuple(own if window is None else window.sizes for own, window in pairs)
            sizes = _label_sizes((*op.inputs, op.output), (*seen, shape))
            read = len(used_args(op.join))
            reads = [
                None if k >= read else _plain(labels, own) if window is None else _seen(window, own)
                for k, (labels, (own, window)) in enumerate(zip(op.inputs, pairs, strict=True))
            ]
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
            reads: list[Dims | None] = []
            start = 0
            for own in shapes:
                image = Image(((op.along, 1, shape[op.axis]),), -start, 1, own[op.axis])
                part = Dim(None, 0, own[op.axis], image=image)
                dims = _plain(op.output, own)
                reads.append((*dims[: op.axis], part, *dims[op.axis + 1 :]))
                start += own[op.axis]
            return _view(op.output, made, reads, _plain(op.output, shape))
        case Window():
            return _view(op.output, made, [_seen(op, shapes[0])], _plain(op.output, shape))
        case Reshape():
            return _reshape(op)
        case Input():
            return _view(op.output, made, [], _plain(op.output, shape))
        case Fill():
            raise AssertionError("fills are generated where they are read")


def _seen(window: Window, shape: Shape) -> Dims:
    """The dimensions of a tensor that is read through a window."""
    sizes, dims = window.by_label, list[Dim]()
    for index, size in zip(window.index, shape, strict=True):
        if (label := index.alone) is not None and sizes[label] == size:
            dims.append(Dim(label, 0, size))
            continue
        terms = tuple((label, times, sizes[label]) for label, times in index.terms)
        image = Image(terms, index.offset, index.divisor, size, index.outside == CLAMP)
        low, high = reached(image, {label: (0, n) for label, _, n in terms})
        dims.append(Dim(None, low, high, image=image if terms else None))
    return tuple(dims)


def reached(image: Image, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """From where to where the places reach, for labels in these ranges."""
    if any(ranges[label][0] >= ranges[label][1] for label, _, _ in image.terms):
        return 0, 0
    low = high = image.offset
    for label, times, _ in image.terms:
        ends = ranges[label][0] * times, (ranges[label][1] - 1) * times
        low, high = low + min(ends), high + max(ends)
    low, high = -(-low // image.divisor), high // image.divisor
    if image.clamps:
        last = image.size - 1
        return min(max(low, 0), last), max(min(high, last), 0) + 1
    low, high = max(low, 0), min(high + 1, image.size)
    return (low, high) if low < high else (0, 0)


def least_units(dim: Dim, parts: int) -> int:
    """The elements of a dimension that so many pieces of its main label read together, at least.

    Of an image, other labels may be cut as well: then each stands still at its first or last place.
    """
    if dim.image is None:
        return dim.stop - dim.start
    main, *others = sorted(dim.image.terms, key=lambda term: -abs(term[1]) * term[2])
    whole = main[0], (0, main[2])
    ends = product(*([(label, (0, 1)), (label, (n - 1, n))] for label, _, n in others))
    reaches = (reached(dim.image, dict([whole, *corner])) for corner in ends)
    gap = -(-(abs(main[1]) - 1) // dim.image.divisor)
    return max(min(high - low for low, high in reaches) - gap * (parts - 1), 0)


def _label_sizes(tensors: tuple[Labels, ...], shapes: tuple[Shape, ...]) -> dict[str, int]:
    pairs = (zip(labels, shape, strict=True) for labels, shape in zip(tensors, shapes, strict=True))
    return dict(label_and_size for pair in pairs for label_and_size in pair)


def _plain(labels: Labels | list[str | None], shape: tuple[int, ...]) -> Dims:
    return tuple(Dim(label, 0, size) for label, size in zip(labels, shape, strict=True))


def _view(labels: Labels, sizes: Sizes, reads: Sequence[Dims | None], output: Dims) -> View:
    """The view over the labels that cut some dimension; a label of size 0 cannot be cut."""
    empty = {label for label in labels if sizes[label] == 0}
    if empty:
        reads = [_without(empty, dims) for dims in reads]
        output = _without(empty, output) or ()
    cutting = {label for dims in (*reads, output) for dim in dims or () for label in dim.labels}
    kept = tuple(label for label in labels if label in cutting - empty)
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
        if (i := view.along(dim)) is not None:
            pieces[:, d] = parts[:, i]
    return pieces


def tile_sides(dims: Dims, pieces: Ints) -> Ints:
    """The sides of the largest tile, one row per partition vector."""
    units = np.array([(d.stop - d.start) // d.scale for d in dims], dtype=np.int64)
    scale = np.array([d.scale for d in dims], dtype=np.int64)
    return -(-units // pieces) * scale

"""Convolutions among EinSums that read through windows, as libraries know them.

A sum of products of two tensors, one of them read through a window, is a convolution if each of its
dimensions is walked by positions of the result, by taps of the other tensor, or by both. Gradients
of convolutions are convolutions: by the input with the adjoint's elements set apart, by the weights
with the adjoint for weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from eindecomp.graph.ops import Op, Window
from eindecomp.graph.shown import Places, Shown
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.dtypes import DType
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.index import Index
from eindecomp.lang.monoid import BUILTIN
from eindecomp.lang.scalar import Arg

MOST_SWEPT = 3
"""Dimensions that libraries' convolutions and pools sweep."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A tile and what is shown of it, for kernels that know what to make of windows."""

    tile: Any
    shown: Shown


@dataclass(frozen=True, slots=True)
class Sweep:
    """A dimension of the tensor that is read through a window, and the labels that walk it."""

    axis: int
    position: str
    """A label of the result; or nothing."""
    tap: str
    """A label of the other tensor, or of the pool; or nothing."""


@dataclass(frozen=True, slots=True)
class Swept:
    """Sizes along such a dimension: of the tile, and of the steps in which labels walk."""

    size: int
    positions: int
    taps: int
    stride: int
    dilation: int
    """Below 0 where taps walk backwards."""
    before: int
    """Zeros before the first element."""
    after: int
    step: int
    """From one element to the next, zeros between them."""

    @property
    def reach(self) -> int:
        """From the first tap to the last."""
        return abs(self.dilation) * (self.taps - 1)


@dataclass(frozen=True, slots=True)
class Convolution:
    """The roles of labels: each is in two of the three tensors, or in all, as groups are."""

    op: EinSum
    seen: int
    """Which operand is read through a window."""
    axes: Labels
    """The label of each of its dimensions, nothing where labels sweep."""
    sweeps: tuple[Sweep, ...]
    batch: Labels
    """Labels of what is seen and of the result."""
    groups: Labels
    summed: Labels
    made: Labels
    """Labels of the other tensor and of the result."""

    def swept(self, shown: Shown) -> tuple[Swept, ...] | None:
        """The sizes along each dimension; None where not all outside of the tile is zero."""
        return swept(self.op.inputs[self.seen], self.sweeps, shown, 0)

    def sizes(self, shown: Shown, other: Sequence[int]) -> Mapping[str, int]:
        """The size of each label, for another tensor of some shape."""
        labels = (*self.op.inputs[1 - self.seen], *self.op.inputs[self.seen])
        return dict(zip(labels, (*other, *shown.shape), strict=True))


@dataclass(frozen=True, slots=True)
class Pool:
    """An aggregation of what one window shows."""

    op: EinSum
    axes: Labels
    sweeps: tuple[Sweep, ...]

    def swept(self, shown: Shown, outside: float) -> tuple[Swept, ...] | None:
        """The sizes along each dimension; None where not all outside of the tile is that."""
        return swept(self.op.inputs[0], self.sweeps, shown, outside)


def swept(
    labels: Labels, sweeps: Sequence[Sweep], shown: Shown, outside: float
) -> tuple[Swept, ...] | None:
    """The sizes along each swept dimension of a tile; None if no library has such sizes."""
    if 0 in shown.shape:
        return None
    sizes = dict(zip(labels, shown.shape, strict=True))
    walks = dict(zip(labels, shown.walks, strict=True))
    found: list[Swept] = []
    for sweep in sweeps:
        own = shown.places[sweep.axis]
        stride, dilation = (
            walks[label][sweep.axis] if label else 1 for label in (sweep.position, sweep.tap)
        )
        after = own.count - own.start - (own.size - 1) * own.step - 1
        lacks = own.start > 0 or after > 0 or own.step > 1
        if own.size < 1 or stride < 1 or own.start < 0 or after < 0:
            return None
        if lacks and own.outside != outside:
            return None
        positions, taps = (sizes.get(label, 1) for label in (sweep.position, sweep.tap))
        steps = stride, dilation, own.start, after, own.step
        found.append(Swept(own.size, positions, taps, *steps))
    is_plain = all(
        own.is_filled
        for axis, own in enumerate(shown.places)
        if all(sweep.axis != axis for sweep in sweeps)
    )
    return tuple(found) if is_plain else None


def filled(shown: Shown) -> Shown:
    """The same of a tile that has everything that stands beside it."""
    whole = tuple(Places(own.count, 0, own.count, 1, None) for own in shown.places)
    return Shown(whole, shown.starts, shown.walks, shown.shape)


def convolution_of(vertex: Vertex, types: Sequence[DType]) -> Convolution | None:
    """The convolution that a vertex is, of numbers for which libraries have one; or None."""
    is_float = {t.kind for t in (*types, vertex.dtype)} <= {"f", "V"}
    return _convolution(vertex.op, vertex.windows) if vertex.windows and is_float else None


@lru_cache(maxsize=2**10)
def _convolution(op: Op, windows: tuple[Window | None, ...]) -> Convolution | None:
    if not isinstance(op, EinSum) or not op.is_contraction or len(op.inputs) != 2:
        return None
    seen = 0 if windows[0] is not None else 1
    window = windows[seen]
    own, other, out = {*op.inputs[seen]}, {*op.inputs[1 - seen]}, {*op.output}
    is_once = all(len({*labels}) == len(labels) for labels in op.inputs)
    if window is None or windows[1 - seen] is not None or not is_once:
        return None
    if any((x in own) + (x in other) + (x in out) < 2 for x in own | other | out):
        return None
    sides = _sides(window.index, out - other, other - out)
    if sides is None:
        return None
    axes, sweeps = sides

    def alike(labels: Labels, *marks: bool) -> Labels:
        swept = {label for sweep in sweeps for label in (sweep.position, sweep.tap)}
        return tuple(
            x for x in labels if x not in swept and (x in own, x in other, x in out) == marks
        )

    batch, groups = alike(op.output, True, False, True), alike(op.output, True, True, True)
    summed, made = alike(op.aggregated, True, True, False), alike(op.output, False, True, True)
    return Convolution(op, seen, axes, sweeps, batch, groups, summed, made)


def _sides(
    indices: Sequence[Index], positions: set[str], taps: set[str]
) -> tuple[Labels, tuple[Sweep, ...]] | None:
    """The labels of plain dimensions, and the sweeps along all others."""
    axes: list[str] = []
    sweeps: list[Sweep] = []
    walked: list[str] = []
    for axis, index in enumerate(indices):
        walked += index.labels
        if index.outside is None and index.divisor == 1 and [n for _, n in index.terms] == [1]:
            axes += index.labels
            continue
        axes.append("")
        by_position = [label for label in index.labels if label in positions]
        by_tap = [label for label in index.labels if label in taps]
        if len(by_position) > 1 or len(by_tap) > 1:
            return None
        if len(index.terms) != len(by_position) + len(by_tap) or not index.terms:
            return None
        sweeps.append(Sweep(axis, "".join(by_position), "".join(by_tap)))
    if not 1 <= len(sweeps) <= MOST_SWEPT or len({*walked}) < len(walked):
        return None
    return tuple(axes), tuple(sweeps)


def pool_of(vertex: Vertex) -> Pool | None:
    """The pool that a vertex is: the sum or the maximum of what a window shows; or None."""
    if vertex.windows and isinstance(vertex.op, EinSum) and vertex.dtype.kind in "fV":
        return _pool(vertex.op, vertex.windows)
    return None


@lru_cache(maxsize=2**10)
def _pool(op: EinSum, windows: tuple[Window | None, ...]) -> Pool | None:
    window, agg = windows[0], op.agg
    is_pool = len(op.inputs) == 1 and op.join == Arg(0) and agg is not None
    if not is_pool or agg is None or agg.name not in ("sum", "max") or window is None:
        return None
    once = len({*op.inputs[0]}) == len(op.inputs[0])
    if BUILTIN.get(agg.name) != agg or not once or not {*op.output} <= {*op.inputs[0]}:
        return None
    sides = _sides(window.index, {*op.output}, {*op.aggregated})
    if sides is None or not all(sweep.position and sweep.tap for sweep in sides[1]):
        return None
    alone = [label for label in sides[0] if label and label not in op.output]
    return None if alone else Pool(op, *sides)


def multiply_adds(convolution: Convolution, sizes: Mapping[str, int]) -> int:
    """How many products a tile sums."""
    return prod(sizes[label] for label in convolution.op.labels)

"""Cuts of tensors: which part of a tensor every device holds or needs.

A *cut* of a tensor has one `Span` per dimension, naming the mesh axes that cut it, outermost first:
the axes nest in any order. Where pieces begin and end is the mesh's rule, told in `mesh.py`; the
pieces of a finer cut lie inside those of the coarser.

Along some axes devices may hold partial results that ⊕ has still to combine: the tensor is
*pending* there. Then a last span, of no dimension, has these axes: the partial results lie side by
side along it, one on each device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import permutations, product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from eindecomp.layout.mesh import CEIL, Ints, Mesh, chunk_ends
from eindecomp.layout.view import Dim, Image

KEPT = 1 << 13  # the most devices for which intervals are cached
MOST_TURNS = 256
Axes = tuple[int, ...]
"""Mesh axes by number, outermost first."""


class Reached(NamedTuple):
    """The image of the pieces that a device has of labels: what their places reach."""

    terms: tuple[tuple[Axes, int, int], ...]
    """For each label the axes that cut it, how many times it moves the place, and its size."""
    offset: int
    divisor: int
    size: int
    clamps: bool


class Span(NamedTuple):
    """A dimension on every device: a piece of `units` blocks of `scale` elements, or a window.

    `axes` are the mesh axes that cut it. Without any, it is `start:stop` on every device; or an
    image of pieces, of which other axes may cut any.
    """

    axes: Axes
    units: int
    scale: int
    start: int
    stop: int
    pending: str = ""
    """Of a last span that is of no dimension: the ⊕ that combines the partial results along it."""
    image: Reached | None = None

    @property
    def main_axes(self) -> Axes:
        """The axes that cut it, or the label that reaches farthest of those it is the image of."""
        if self.image is None:
            return self.axes
        return max(self.image.terms, key=lambda term: abs(term[1]) * term[2])[0]

    @property
    def every_axis(self) -> Axes:
        """The axes that cut it, or what it is the image of."""
        terms = () if self.image is None else self.image.terms
        return (*self.axes, *(axis for axes, _, _ in terms for axis in axes))


Cut = tuple[Span, ...]


def span_of(dim: Dim, axes: Axes = ()) -> Span:
    """The span of a dimension that these axes cut."""
    units = (dim.stop - dim.start) // dim.scale
    return Span(axes, units, dim.scale, dim.start, dim.stop)


def image_of(dim: Dim, image: Image, axes_of: Callable[[str], Axes]) -> Span:
    """The span of a dimension that is read at computed places, if axes cut any of its labels."""
    terms = tuple((axes_of(label), times, size) for label, times, size in image.terms)
    if not any(axes for axes, _, _ in terms):
        return span_of(dim)
    return span_of(dim)._replace(image=Reached(terms, *image[1:]))


def pending_span(mesh: Mesh, axes: Iterable[int], agg: str) -> Span:
    """The span of partial results that ⊕ combines over these axes."""
    ordered = tuple(sorted(axes))
    parts = pieces_by(mesh, ordered)
    return Span(ordered, parts, 1, 0, parts, agg)


def pending_in(cut: Cut) -> Span | None:
    """The span of partial results, if there is one."""
    return cut[-1] if cut and cut[-1].pending else None


def combined(cut: Any) -> Any:
    """The spans of dimensions alone: the same cut of the whole tensor.

    Numbers of pieces are cuts, too, in `planner/space/pieces.py`.
    """
    return cut[:-1] if cut and cut[-1].pending else cut


def bits_of(axes: Axes) -> int:
    """A set of axes as bits."""
    bits = 0
    for axis in axes:
        bits |= 1 << axis
    return bits


def axes_in(mesh: Mesh, bits: int) -> Axes:
    """The axes of a set that is given as bits."""
    return tuple(axis for axis in range(len(mesh.sizes)) if bits >> axis & 1)


def parts_of(mesh: Mesh, axes: int) -> int:
    """Into how many pieces a set of axes, given as bits, cuts."""
    return prod(size for axis, size in enumerate(mesh.sizes) if axes >> axis & 1)


def pieces_by(mesh: Mesh, axes: Axes) -> int:
    """Into how many pieces axes cut."""
    return prod(mesh.sizes[a] for a in axes)


def used_axes(cut: Cut) -> int:
    """All axes that cut some dimension, as bits."""
    used = 0
    for span in cut:
        used |= bits_of(span.every_axis)
    return used


def is_plain(cut: Cut) -> bool:
    """Whether no axis cuts two dimensions, as it does on a diagonal, and none is an image."""
    used = [axis for span in cut for axis in span.axes]
    return len(set(used)) == len(used) and all(span.image is None for span in cut)


def interval(mesh: Mesh, span: Span) -> tuple[Ints, Ints]:
    """Where the span begins and ends on every device."""
    return _kept_interval(mesh, span) if mesh.devices <= KEPT else _interval(mesh, span)


def _interval(mesh: Mesh, span: Span, fixed: Mapping[int, int] | None = None) -> tuple[Ints, Ints]:
    """The interval on every device, or the one where some axes have fixed coordinates instead."""
    if span.image is not None:
        return _reached(mesh, span.image)
    if mesh.pieces == CEIL:
        return _chunks(mesh, span, fixed or {})
    stride = dict.fromkeys(range(len(mesh.sizes)), 0)
    parts = 1
    for axis in reversed(span.axes):
        stride[axis] = parts
        parts *= mesh.sizes[axis]
    index = np.zeros(1, dtype=np.int64)
    for axis, size in reversed(list(enumerate(mesh.sizes))):
        own = np.arange(size, dtype=np.int64)
        if fixed and axis in fixed:
            own = np.full(size, fixed[axis], dtype=np.int64)
        index = np.add.outer(stride[axis] * own, index).ravel()
    low = span.start + span.scale * (index * span.units // parts)
    high = span.start + span.scale * ((index + 1) * span.units // parts)
    return low, high


_kept_interval = lru_cache(maxsize=1 << 12)(_interval)


def _chunks(mesh: Mesh, span: Span, fixed: Mapping[int, int]) -> tuple[Ints, Ints]:
    """The same where each axis cuts into chunks what the axes outside it have left."""
    digits: list[Ints] = []
    for axis in span.axes:
        own = np.arange(mesh.sizes[axis], dtype=np.int64)
        own = np.array([fixed[axis]], dtype=np.int64) if axis in fixed else own
        digits.append(own.reshape([-1 if a == axis else 1 for a in range(len(mesh.sizes))]))
    ends = chunk_ends(span.units, [mesh.sizes[axis] for axis in span.axes], digits)
    low, high = (np.broadcast_to(end, mesh.sizes).reshape(-1) for end in ends)
    return span.start + span.scale * low, span.start + span.scale * high


def _reached(mesh: Mesh, image: Reached) -> tuple[Ints, Ints]:
    """What places reach on every device."""
    low = high = np.full(mesh.devices, image.offset, dtype=np.int64)
    is_empty = np.zeros(mesh.devices, dtype=bool)
    for axes, times, size in image.terms:
        first, end = interval(mesh, Span(axes, size, 1, 0, size))
        is_empty |= first >= end
        ends = first * times, (end - 1) * times
        low, high = low + np.minimum(*ends), high + np.maximum(*ends)
    low, high = -(-low // image.divisor), high // image.divisor
    last = image.size - 1
    if image.clamps:
        low, high = np.clip(low, 0, last), np.clip(high, 0, last) + 1
    else:
        low, high = np.maximum(low, 0), np.minimum(high, last) + 1
    is_empty |= low >= high
    return np.where(is_empty, 0, low), np.where(is_empty, 0, high)


def largest_side(mesh: Mesh, span: Span) -> int:
    """The most elements of a dimension that any device holds."""
    if span.image is not None:
        low, high = interval(mesh, span)
        return int((high - low).max())
    return -(-span.units // pieces_by(mesh, span.axes)) * span.scale


def turns_of(mesh: Mesh, span: Span, nbytes: int, most: int) -> int:
    """The fewest turns, each of equal rows, in which so many bytes become `most` at a time.

    Rows of a dimension that is cut unevenly are taken in one turn; beyond `MOST_TURNS`, more is
    there at a time.
    """
    rows, left = divmod(span.units, pieces_by(mesh, span.axes))
    if left or span.scale != 1 or not rows or nbytes <= most:
        return 1
    counts = [n for n in range(1, min(rows, MOST_TURNS) + 1) if not rows % n]
    return next((n for n in counts if nbytes <= n * most), counts[-1])


def boxes_key(mesh: Mesh, cut: Cut) -> tuple[bytes, ...]:
    """Equal for cuts that give every device the same box."""
    ends = (end for span in cut for end in interval(mesh, span))
    return tuple(end.tobytes() for end in ends)


def outer_cut(cut: Cut, axes: int) -> Cut:
    """What devices hold if only this many outer axes of the mesh cut."""
    return tuple(_outer(span, axes) for span in cut)


def _outer(span: Span, axes: int) -> Span:
    if span.image is None:
        return span._replace(axes=tuple(a for a in span.axes if a < axes))
    terms = ((tuple(a for a in own if a < axes), *rest) for own, *rest in span.image.terms)
    return span._replace(image=span.image._replace(terms=tuple(terms)))  # pyright: ignore[reportArgumentType]


def nests_outward(cut: Cut, axes: int) -> bool:
    """Whether, in each dimension, this many outer axes of the mesh nest outside all others.

    Then `outer_cut` is what devices hold together that have equal coordinates along those.
    """
    inner = ([a >= axes for a in span.axes] for span in cut)
    return all(flags == sorted(flags) for flags in inner)


def intervals_within(mesh: Mesh, span: Span, axes: int) -> list[tuple[Ints, Ints]]:
    """What devices hold together that have equal coordinates along this many outer axes.

    For every device a list of disjoint intervals: where each begins and ends.
    """
    inside = [a for a in span.axes if a >= axes]
    if span.axes[len(span.axes) - len(inside) :] == tuple(inside):  # they nest inside all others
        return [interval(mesh, span._replace(axes=span.axes[: len(span.axes) - len(inside)]))]
    digits = product(*(range(mesh.sizes[a]) for a in inside))
    return [_interval(mesh, span, dict(zip(inside, row, strict=True))) for row in digits]


def in_mesh_order(kept: Axes, added: Axes) -> Axes:
    """Axes with others added, each outside the first one that comes later in the mesh.

    >>> in_mesh_order((0, 2), (1,)), in_mesh_order((2, 0), (1,))
    ((0, 1, 2), (1, 2, 0))
    """
    nested = list(kept)
    for axis in added:
        later = (k for k, other in enumerate(nested) if other > axis)
        nested.insert(next(later, len(nested)), axis)
    return tuple(nested)


def interleaved(kept: Axes, added: Axes) -> Iterator[Axes]:
    """Every order of all axes in which the kept ones nest as they do.

    >>> list(interleaved((0, 1), (2,)))
    [(0, 1, 2), (0, 2, 1), (2, 0, 1)]
    """
    for order in permutations(added):
        yield from _merged(kept, order)


def _merged(one: Axes, other: Axes) -> Iterator[Axes]:
    """Every merge of two lists that keeps both in order."""
    if not one or not other:
        yield (*one, *other)
        return
    for rest in _merged(one[1:], other):
        yield (one[0], *rest)
    for rest in _merged(one, other[1:]):
        yield (other[0], *rest)

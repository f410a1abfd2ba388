"""Box arithmetic: which part of a tensor a device holds or needs, and how much must move.

A *cut* of a tensor has one `Span` per dimension, naming the mesh axes that cut it. Within a
dimension axes nest in mesh order, but what a reduce-scatter cuts further lies inside the tile that
was there before. Piece k of n units cut m ways is `k*n//m : (k+1)*n//m`: pieces differ by at most
one unit, and those of a further cut lie inside the coarser ones.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eindecomp.errors import UnsolvedError
from eindecomp.planner.aligned import aligned_overlaps, nested_axes
from eindecomp.planner.mesh import Mesh

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from eindecomp.planner.view import Dim

    Ints = NDArray[np.int64]

_CELLS = 1 << 22  # of overlaps held at once
_MOST = 1 << 31  # overlaps of pairs of cuts that are counted device by device
_MOST_LINKED = 1 << 25  # devices that are counted where dimensions are linked
_COUNTED = 1 << 7  # devices from which on digits are quicker, where they can be compared
_KEPT = 1 << 13  # devices up to which intervals are kept for the next time


class Span(NamedTuple):
    """A dimension on every device: a piece of `units` blocks of `scale` elements, or a window.

    `axes` are those that cut it, as bits, `inner` those that then cut the pieces again; without
    any, it is `start:stop` everywhere.
    """

    axes: int
    inner: int
    units: int
    scale: int
    start: int
    stop: int


Cut = tuple[Span, ...]


def span_of(dim: Dim, axes: int, inner: int = 0) -> Span:
    """The span of a dimension that these axes cut; equal boxes make equal spans."""
    if axes.bit_length() <= (inner & -inner).bit_length() - 1 or not axes:
        axes, inner = axes | inner, 0  # in mesh order anyway
    units = (dim.stop - dim.start) // dim.scale
    return Span(axes, inner, units, dim.scale, dim.start, dim.stop)


def parts_of(mesh: Mesh, axes: int) -> int:
    """Into how many pieces a set of axes cuts."""
    return prod(size for a, size in enumerate(mesh.sizes) if axes >> a & 1)


def used_axes(cut: Cut) -> int:
    """All axes that cut some dimension."""
    used = 0
    for span in cut:
        used |= span.axes | span.inner
    return used


def interval(mesh: Mesh, span: Span) -> tuple[Ints, Ints]:
    """Where the span begins and ends on every device."""
    if mesh.devices <= _KEPT:
        return _kept_interval(mesh, span)
    return _interval(mesh, span)


@lru_cache(maxsize=1 << 12)
def _kept_interval(mesh: Mesh, span: Span) -> tuple[Ints, Ints]:
    return _interval(mesh, span)


def _interval(mesh: Mesh, span: Span) -> tuple[Ints, Ints]:
    stride = dict.fromkeys(range(len(mesh.sizes)), 0)
    parts = 1
    for axis in reversed(nested_axes(mesh, span)):
        stride[axis] = parts
        parts *= mesh.sizes[axis]
    index = np.zeros(1, dtype=np.int64)
    for axis, size in reversed(list(enumerate(mesh.sizes))):
        index = np.add.outer(stride[axis] * np.arange(size, dtype=np.int64), index).ravel()
    low = span.start + span.scale * (index * span.units // parts)
    high = span.start + span.scale * ((index + 1) * span.units // parts)
    return low, high


def largest_side(mesh: Mesh, span: Span) -> int:
    """How many elements of a dimension the device with the most of them has."""
    return -(-span.units // parts_of(mesh, span.axes | span.inner)) * span.scale


def boxes_key(mesh: Mesh, cut: Cut) -> tuple[bytes, ...]:
    """Equal for cuts that give every device the same box."""
    ends = (end for span in cut for end in interval(mesh, span))
    return tuple(end.tobytes() for end in ends)


def outer_cut(cut: Cut, axes: int) -> Cut:
    """What devices that agree on this many outer axes hold together."""
    kept = (1 << axes) - 1
    return tuple(span._replace(axes=span.axes & kept, inner=span.inner & kept) for span in cut)


def covers(held: Sequence[Cut], needed: Sequence[Cut]) -> NDArray[np.bool_]:
    """Whether all devices together hold what is needed: a table held × needed.

    A layout that some slice reads is a window of its tensor.
    """
    found = np.ones((len(held), len(needed)), dtype=bool)
    for ours, theirs in zip(zip(*held, strict=True), zip(*needed, strict=True), strict=True):
        low, high = np.array([(s.start, s.stop) for s in ours]).T
        low2, high2 = np.array([(s.start, s.stop) for s in theirs]).T
        found &= (low[:, None] <= low2[None]) & (high2[None] <= high[:, None])
    return found


def totals(mesh: Mesh, cuts: Sequence[Cut]) -> Ints:
    """The elements of each cut, summed over all devices."""
    found = [_sum_of_volumes(mesh, cut) for cut in cuts]
    return np.array(found, dtype=np.int64)


def fullest(mesh: Mesh, cuts: Sequence[Cut]) -> Ints:
    """The elements of each cut on the device that has most."""
    found = [
        prod(_largest(mesh, span) for span in cut)
        if _is_plain(cut)
        else int(_volumes(mesh, cut).max())
        for cut in cuts
    ]
    return np.array(found, dtype=np.int64)


def _sum_of_volumes(mesh: Mesh, cut: Cut) -> int:
    if not _is_plain(cut):
        return int(_volumes(mesh, cut).sum())
    # Pieces of a dimension make up the whole of it, and no axis cuts two.
    whole = prod(span.stop - span.start for span in cut)
    return whole * (mesh.devices // parts_of(mesh, used_axes(cut)))


def _largest(mesh: Mesh, span: Span) -> int:
    if not span.axes | span.inner:
        return span.stop - span.start
    return -(-span.units // parts_of(mesh, span.axes | span.inner)) * span.scale


def _is_plain(cut: Cut) -> bool:
    """Whether no axis cuts two dimensions, as on a diagonal."""
    used = 0
    for span in cut:
        if used & (span.axes | span.inner):
            return False
        used |= span.axes | span.inner
    return True


def _volumes(mesh: Mesh, cut: Cut) -> Ints:
    """The elements of a cut on every device."""
    found = np.ones(mesh.devices, dtype=np.int64)
    for span in cut:
        low, high = interval(mesh, span)
        found *= high - low
    return found


def overlaps(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut]) -> Ints:
    """The elements that each device needs and holds already, summed: a table held × needed."""
    if mesh.devices > _COUNTED and (digits := aligned_overlaps(mesh, held, needed)) is not None:
        return digits
    if mesh.devices > _KEPT:
        return _overlaps_by_groups(mesh, held, needed)
    found = np.zeros((len(held), len(needed)), dtype=np.int64)
    for rows, shared, _ in _shared(mesh, held, needed):
        found[rows] += shared.sum(axis=2)
    return found


def _overlaps_by_groups(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut]) -> Ints:
    """The same for large meshes: only dimensions that axes link are looked at together."""
    known: dict[tuple[tuple[Span, Span], ...], tuple[int, int]] = {}
    found = np.ones((len(held), len(needed)), dtype=np.int64)
    counted = 0
    for i, ours in enumerate(held):
        for j, theirs in enumerate(needed):
            left, shared = mesh.devices, 1
            for group in _linked(list(zip(ours, theirs, strict=True))):
                if group not in known:
                    known[group] = _overlap_of_group(mesh, group)
                    counted += known[group][1]
                shared *= known[group][0]
                left //= known[group][1]
            found[i, j] = shared * left
            if counted > _MOST_LINKED:
                raise _too_many(mesh, held, needed)
    return found


def _linked(dims: list[tuple[Span, Span]]) -> Iterator[tuple[tuple[Span, Span], ...]]:
    """The dimensions in groups: those of different ones have no axis in common."""
    left = [(used_axes(pair), pair) for pair in dims]
    while left:
        axes, first = left.pop()
        group = [first]
        while near := [entry for entry in left if entry[0] & axes]:
            left = [entry for entry in left if not entry[0] & axes]
            group += [pair for _, pair in near]
            axes |= used_axes(tuple(span for pair in group for span in pair))
        yield tuple(group)


def _overlap_of_group(mesh: Mesh, group: tuple[tuple[Span, Span], ...]) -> tuple[int, int]:
    """What is needed and held over the axes of a group, and the devices that those make."""
    used = used_axes(tuple(span for pair in group for span in pair))
    axes = [a for a in range(len(mesh.sizes)) if used >> a & 1]
    own = Mesh(tuple(mesh.names[a] for a in axes), tuple(mesh.sizes[a] for a in axes))

    def ends(span: Span) -> tuple[Ints, Ints]:
        outer, inner = (
            sum(1 << i for i, a in enumerate(axes) if bits >> a & 1)
            for bits in (span.axes, span.inner)
        )
        return interval(own, span._replace(axes=outer, inner=inner))

    shared = np.ones(own.devices, dtype=np.int64)
    for ours, theirs in group:
        (low, high), (low2, high2) = ends(ours), ends(theirs)
        shared *= np.maximum(np.minimum(high, high2) - np.maximum(low, low2), 0)
    return int(shared.sum()), own.devices


def copied(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut]) -> Ints:
    """The elements that the fullest device must hold besides: a table held × needed.

    What lies inside the held box is a view of it; what does not is put together as a whole.
    """
    found = np.zeros((len(held), len(needed)), dtype=np.int64)
    for rows, shared, wanted in _shared(mesh, held, needed):
        found[rows] = np.maximum(found[rows], np.where(shared == wanted, 0, wanted).max(axis=2))
    return found


def _shared(
    mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut]
) -> Iterator[tuple[slice, Ints, Ints]]:
    """What devices need and hold, held × needed × devices, and need, a portion at a time.

    A portion is some rows of some of the devices.
    """
    if not held or not needed:
        return
    if len(held) * len(needed) * mesh.devices > _MOST:
        raise _too_many(mesh, held, needed)
    sides = [
        _side(mesh, ours, theirs)
        for ours, theirs in zip(zip(*held, strict=True), zip(*needed, strict=True), strict=True)
    ]
    step = max(1, min(mesh.devices, _CELLS // len(needed)))
    rows = max(1, _CELLS // (len(needed) * step))
    for first in range(0, mesh.devices, step):
        some = slice(first, min(first + step, mesh.devices))
        shared = [side.shared(some) for side in sides]
        wanted = np.ones((len(needed), some.stop - first), dtype=np.int64)
        for side in sides:
            wanted *= side.size(some)[side.of_needed]
        for at in range(0, len(held), rows):
            part = slice(at, min(at + rows, len(held)))
            total: Ints | None = None
            for side, both in zip(sides, shared, strict=True):
                own = both[side.of_held[part, None], side.of_needed[None]]
                total = own if total is None else np.multiply(total, own, out=total)
            if total is None:
                total = np.ones((part.stop - at, *wanted.shape), dtype=np.int64)
            yield part, total, wanted[None]


def _too_many(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut]) -> UnsolvedError:
    layouts = f"{len(held)} × {len(needed)} layouts on {mesh.devices} devices"
    return UnsolvedError(f"{layouts} are too many to compare")


class _Side(NamedTuple):
    """One dimension: the ends of distinct spans, and which of them each cut has."""

    held: tuple[Ints, Ints]
    needed: tuple[Ints, Ints]
    of_held: Ints
    of_needed: Ints

    def shared(self, devices: slice) -> Ints:
        """How much of the needed spans the held ones have, on some devices."""
        (low, high), (low2, high2) = self.held, self.needed
        low, high, low2, high2 = (end[:, devices] for end in (low, high, low2, high2))
        both = np.minimum(high[:, None], high2[None]) - np.maximum(low[:, None], low2[None])
        return np.maximum(both, 0)

    def size(self, devices: slice) -> Ints:
        """How long the needed spans are."""
        low, high = self.needed
        return high[:, devices] - low[:, devices]


def _side(mesh: Mesh, held: Sequence[Span], needed: Sequence[Span]) -> _Side:
    ours, of_held = _distinct(held)
    theirs, of_needed = _distinct(needed)
    return _Side(_ends(mesh, ours), _ends(mesh, theirs), of_held, of_needed)


def _ends(mesh: Mesh, spans: list[Span]) -> tuple[Ints, Ints]:
    ends = [interval(mesh, span) for span in spans]
    return np.stack([low for low, _ in ends]), np.stack([high for _, high in ends])


def _distinct(spans: Sequence[Span]) -> tuple[list[Span], Ints]:
    index: dict[Span, int] = {}
    places = [index.setdefault(span, len(index)) for span in spans]
    return list(index), np.array(places, dtype=np.int64)


def moved(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut]) -> Ints:
    """The elements that devices must receive in all: a table held × needed."""
    return totals(mesh, needed)[None] - overlaps(mesh, held, needed)

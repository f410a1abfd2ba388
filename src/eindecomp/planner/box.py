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

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from eindecomp.planner.mesh import Mesh
    from eindecomp.planner.view import Dim

    Ints = NDArray[np.int64]

_CELLS = 1 << 22  # of overlaps held at once


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


@lru_cache(maxsize=1 << 12)
def interval(mesh: Mesh, span: Span) -> tuple[Ints, Ints]:
    """Where the span begins and ends on every device."""
    index = np.zeros(mesh.devices, dtype=np.int64)
    for axes in (span.axes, span.inner):
        for a, size in enumerate(mesh.sizes):
            if axes >> a & 1:
                index = index * size + mesh.coordinates[a]
    parts = parts_of(mesh, span.axes | span.inner)
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


def volumes(mesh: Mesh, cuts: Sequence[Cut]) -> Ints:
    """The elements of each cut on every device: one row per cut."""
    found = np.ones((len(cuts), mesh.devices), dtype=np.int64)
    for row, cut in enumerate(cuts):
        for span in cut:
            low, high = interval(mesh, span)
            found[row] *= high - low
    return found


def overlaps(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut]) -> Ints:
    """The elements that each device needs and holds already, summed: a table held × needed."""
    found = np.zeros((len(held), len(needed)), dtype=np.int64)
    for rows, shared in _shared(mesh, held, needed):
        found[rows] = shared.sum(axis=2)
    return found


def copied(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut]) -> Ints:
    """The elements that the fullest device must hold besides: a table held × needed.

    What lies inside the held box is a view of it; what does not is put together as a whole.
    """
    found = np.zeros((len(held), len(needed)), dtype=np.int64)
    wanted = volumes(mesh, needed)[None]
    for rows, shared in _shared(mesh, held, needed):
        found[rows] = np.where(shared == wanted, 0, wanted).max(axis=2)
    return found


def _shared(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut]) -> Iterator[tuple[slice, Ints]]:
    """The elements that devices need and hold, held × needed × devices, some rows at a time."""
    if not held or not needed:
        return
    sides = [
        _side(mesh, ours, theirs)
        for ours, theirs in zip(zip(*held, strict=True), zip(*needed, strict=True), strict=True)
    ]
    if not sides:
        yield slice(None), np.ones((len(held), len(needed), mesh.devices), dtype=np.int64)
        return
    rows = max(1, _CELLS // (len(needed) * mesh.devices))
    for at in range(0, len(held), rows):
        total: Ints | None = None
        for shared, of_held, of_needed in sides:
            side = shared[of_held[at : at + rows, None], of_needed[None]]
            total = side if total is None else np.multiply(total, side, out=total)
        assert total is not None  # noqa: S101 - there is a side
        yield slice(at, at + rows), total


def _side(mesh: Mesh, held: Sequence[Span], needed: Sequence[Span]) -> tuple[Ints, Ints, Ints]:
    """Overlaps of distinct spans on every device, and which of them each cut has."""
    ours, of_held = _distinct(held)
    theirs, of_needed = _distinct(needed)
    (low, high), (low2, high2) = _ends(mesh, ours), _ends(mesh, theirs)
    shared = np.minimum(high[:, None], high2[None]) - np.maximum(low[:, None], low2[None])
    return np.maximum(shared, 0), of_held, of_needed


def _ends(mesh: Mesh, spans: list[Span]) -> tuple[Ints, Ints]:
    ends = [interval(mesh, span) for span in spans]
    return np.stack([low for low, _ in ends]), np.stack([high for _, high in ends])


def _distinct(spans: Sequence[Span]) -> tuple[list[Span], Ints]:
    index: dict[Span, int] = {}
    places = [index.setdefault(span, len(index)) for span in spans]
    return list(index), np.array(places, dtype=np.int64)


def moved(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut]) -> Ints:
    """The elements that devices must receive in all: a table held × needed."""
    return volumes(mesh, needed).sum(axis=1)[None] - overlaps(mesh, held, needed)

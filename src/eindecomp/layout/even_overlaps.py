"""Overlaps of even cuts, on meshes of any size: counted by digits, not device by device.

An even piece of a dimension is named by the coordinates of the axes that cut it, outermost first,
as a number is by its digits. Two pieces overlap if the digits that both have are equal; one of them
then lies inside the other. So a device holds part of what it needs if certain pairs of its
coordinates are equal. Each axis is in at most one pair as holder and in at most one as reader, so
the pairs form paths and cycles of axes, and the number of devices follows from those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eindecomp.layout.cut import bits_of, pieces_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eindecomp.layout.cut import Axes, Cut, Span
    from eindecomp.layout.mesh import Mesh

    Ints = NDArray[np.int64]

_CELLS = 1 << 22  # entries of the maps between axes that are held at once


def aligned_overlaps(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut]) -> Ints | None:
    """The elements that devices need and hold, summed: a table held × needed.

    None where some cut is uneven, of a diagonal or of a part of the tensor, or where axes of
    different sizes stand for the same digit.
    """
    ours, theirs = _digits(mesh, held), _digits(mesh, needed)
    if ours is None or theirs is None or not _agree(mesh, ours, theirs):
        return None
    tiles = [
        np.array([[_tile(mesh, span) for span in cut] for cut in cuts], dtype=np.int64)
        for cuts in (held, needed)
    ]
    for ends in zip(*(_ends(cut) for cut in (*held, *needed)), strict=True):
        if len(set(ends)) > 1:
            return None
    overlaps = np.empty((len(held), len(needed)), dtype=np.int64)
    rows = max(1, _CELLS // (max(len(needed), 1) * (len(mesh.sizes) + 1)))
    for at in range(0, len(held), rows):
        part = slice(at, at + rows)
        common = np.minimum(tiles[0][part, None], tiles[1][None]).prod(axis=2)
        overlaps[part] = common * _devices(mesh, ours[part], theirs)
    return overlaps


def _ends(cut: Cut) -> list[tuple[int, int]]:
    return [(span.start, span.stop) for span in cut]


def _tile(mesh: Mesh, span: Span) -> int:
    return (span.stop - span.start) // pieces_by(mesh, span.axes)


def _digits(mesh: Mesh, cuts: Sequence[Cut]) -> Ints | None:
    """Cuts × dimensions × digits: the axis of each, -1 beyond the last; None for uneven cuts."""
    rank = len(cuts[0]) if cuts else 0
    digits = np.full((len(cuts), rank, len(mesh.sizes)), -1, dtype=np.int64)
    known: dict[Span, Axes | None] = {}
    for i, cut in enumerate(cuts):
        used = 0
        for d, span in enumerate(cut):
            if span not in known:
                known[span] = _even_axes(mesh, span)
            axes = known[span]
            if axes is None or used & bits_of(axes):
                return None
            used |= bits_of(axes)
            digits[i, d, : len(axes)] = axes
    return digits


def _even_axes(mesh: Mesh, span: Span) -> Axes | None:
    return None if span.units % pieces_by(mesh, span.axes) else span.axes


def _agree(mesh: Mesh, ours: Ints, theirs: Ints) -> bool:
    """Whether axes that stand for the same digit have the same size."""
    sizes = np.array([*mesh.sizes, 0], dtype=np.int64)  # -1 is the last
    both = np.concatenate([ours, theirs])
    there = both >= 0
    most = sizes[both].max(axis=0, initial=0)
    return bool((~there | (sizes[both] == most[None])).all())


def _devices(mesh: Mesh, ours: Ints, theirs: Ints) -> Ints:
    """How many devices have equal coordinates wherever both have a digit."""
    count = len(mesh.sizes)
    sizes = np.array([*mesh.sizes, 1], dtype=np.int64)
    shape = (len(ours), len(theirs))
    # For each axis the one that it must be equal to; `count` stands for none.
    after = np.full((*shape, count + 1), count, dtype=np.int8)
    devices = np.full(shape, mesh.devices, dtype=np.int64)
    for d in range(ours.shape[1]):
        for k in range(count):
            rows, columns = np.flatnonzero(ours[:, d, k] >= 0), np.flatnonzero(theirs[:, d, k] >= 0)
            if not rows.size or not columns.size:
                break
            own, other = ours[rows, d, k], theirs[columns, d, k]
            after[rows[:, None], columns[None], own[:, None]] = other[None]
            devices[rows[:, None], columns[None]] //= sizes[own][:, None]
    # In a cycle of equalities, one follows from the others.
    first = np.broadcast_to(np.arange(count + 1, dtype=np.int8), after.shape)
    steps = 1
    while steps <= count:
        first = np.minimum(first, np.take_along_axis(first, after.astype(np.int64), axis=2))
        after = np.take_along_axis(after, after.astype(np.int64), axis=2)
        steps *= 2
    closes = (after < count) & (first == np.arange(count + 1))
    return devices * np.where(closes, sizes, 1).prod(axis=2)

"""How much of a tensor devices hold, share and must receive, counted from their cuts.

On large meshes, even cuts are compared by digits instead of device by device: an even piece of a
dimension is named by the coordinates of the axes that cut it, outermost first, as a number is by
its digits. Two pieces overlap if the digits that both have are equal; one of them then lies inside
the other. So a device holds part of what it needs if certain pairs of its coordinates are equal.
Each axis is in at most one pair as holder and in at most one as reader, so the pairs form paths and
cycles of axes, and the number of devices follows from those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eindecomp.errors import UnsolvedError
from eindecomp.layout.cut import (
    Cut,
    Span,
    interval,
    intervals_within,
    is_plain,
    largest_side,
    nests_outward,
    outer_cut,
    parts_of,
    pieces_by,
    used_axes,
)
from eindecomp.layout.mesh import Ints, Mesh

Floats = NDArray[np.float64]
_CELLS = 1 << 22  # overlaps held at once
_MOST = 1 << 31  # the most overlaps that are counted device by device
_SMALL = 1 << 10  # overlaps up to which a table is kept
_COUNTED = 1 << 7  # devices above which comparing digits is quicker


def covers(held: Sequence[Cut], needed: Sequence[Cut]) -> NDArray[np.bool_]:
    """Whether all devices together hold what is needed: a table held × needed.

    They may not: a layout that a slice reads is only a window of its tensor.
    """
    covered = np.ones((len(held), len(needed)), dtype=bool)
    for ours, theirs in zip(zip(*held, strict=True), zip(*needed, strict=True), strict=True):
        low, high = np.array([(s.start, s.stop) for s in ours]).T
        low2, high2 = np.array([(s.start, s.stop) for s in theirs]).T
        covered &= (low[:, None] <= low2[None]) & (high2[None] <= high[:, None])
    return covered


@lru_cache(maxsize=1 << 14)
def is_inside(mesh: Mesh, needed: Cut, held: Cut) -> bool:
    """Whether every device holds what a cut would give it."""
    return bool(overlaps(mesh, [held], [needed])[0, 0] == totals(mesh, [needed])[0])


def totals(mesh: Mesh, cuts: Sequence[Cut]) -> Ints:
    """The elements of each cut, summed over all devices."""
    elements: list[int] = []
    for cut in cuts:
        if is_plain(cut):
            # Pieces of a dimension make up the whole of it, and no axis cuts two.
            whole = prod(span.stop - span.start for span in cut)
            elements.append(whole * (mesh.devices // parts_of(mesh, used_axes(cut))))
        else:
            elements.append(int(volumes(mesh, cut).sum()))
    return np.array(elements, dtype=np.int64)


def fullest(mesh: Mesh, cuts: Sequence[Cut]) -> Ints:
    """The elements of each cut on the device that has the most."""
    largest = [
        prod(largest_side(mesh, span) for span in cut)
        if is_plain(cut)
        else int(volumes(mesh, cut).max())
        for cut in cuts
    ]
    return np.array(largest, dtype=np.int64)


def volumes(mesh: Mesh, cut: Cut) -> Ints:
    """The elements of a cut on every device."""
    elements = np.ones(mesh.devices, dtype=np.int64)
    for span in cut:
        low, high = interval(mesh, span)
        elements *= high - low
    return elements


def overlaps(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut], first: int = 0) -> Ints:
    """The elements that each device needs and holds already, summed: a table held × needed.

    Of devices that differ along the axes `first` only the first one counts; these axes cut nothing
    of what is needed. Do not change the table: equal layers of a model share small ones.
    """
    if len(held) * len(needed) <= _SMALL:
        return _small_overlaps(mesh, tuple(held), tuple(needed), first)
    return _counted_overlaps(mesh, held, needed, first)


@lru_cache(maxsize=1 << 11)
def _small_overlaps(mesh: Mesh, held: tuple[Cut, ...], needed: tuple[Cut, ...], first: int) -> Ints:
    table = _counted_overlaps(mesh, held, needed, first)
    table.flags.writeable = False
    return table


def _counted_overlaps(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut], first: int) -> Ints:
    if mesh.devices > _COUNTED and (digits := aligned_overlaps(mesh, held, needed)) is not None:
        return digits // parts_of(mesh, first)  # equal coordinates are as often 0 as anything else
    shared_in_all = np.zeros((len(held), len(needed)), dtype=np.int64)
    for rows, shared, _ in _shared(mesh, held, needed, first):
        shared_in_all[rows] += shared.sum(axis=2)
    return shared_in_all


Group = tuple[int, Any]
"""Devices with the same coordinates along so many outer axes, and how many of them share what comes
in, a table held × needed."""


def most_entering(
    mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut], outer: Group, inner: Group
) -> Floats:
    """The elements that the fullest device receives inside its outer group, from without the inner.

    A table held × needed. Of what a device needs and its group does not hold, it receives a share.
    """
    table = np.zeros((len(held), len(needed)))
    places = range(len(held))
    if mesh.devices > _COUNTED:
        outward = [i for i in places if all(nests_outward(held[i], n) for n, _ in (outer, inner))]
        groups = [(n, sharers[outward]) for n, sharers in (outer, inner)]
        near = [held[i] for i in outward]
        most = _aligned_entering(mesh, near, needed, *groups) if near else None
        if most is not None:
            table[outward] = most
            places = sorted({*places} - {*outward})
    _check_count(mesh, len(places), len(needed))
    wanted: Any = np.stack([volumes(mesh, cut) for cut in needed]) if places else 0
    rows = max(1, _CELLS // (len(needed) * mesh.devices))
    for at in range(0, len(places), rows):
        part = list(places[at : at + rows])
        entering: Any = 0.0
        for sign, (axes, sharers) in ((-1, outer), (1, inner)):
            found: Any = _found_near(mesh, [held[i] for i in part], needed, axes)
            entering = entering + sign * (wanted - found) / sharers[part, :, None]
        table[part] = entering.max(axis=2)
    return np.maximum(table, 0)


def _aligned_entering(
    mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut], outer: Group, inner: Group
) -> Floats | None:
    """The same where even cuts are compared by digits: a device finds all it can or nothing."""
    need = fullest(mesh, needed).astype(np.float64)[None]
    found: list[tuple[Ints, Ints]] = []
    for axes, _ in (outer, inner):
        aligned = _aligned(mesh, [outer_cut(cut, axes) for cut in held], needed)
        if aligned is None:
            return None
        found.append(aligned)
    (common, devices), (nearer, fewer) = found
    (_, before), (_, after) = outer, inner
    most = np.where(fewer > 0, (need - nearer) / after - (need - common) / before, 0.0)
    some = np.where(devices > fewer, need / after - (need - common) / before, 0.0)
    none = np.where(devices < mesh.devices, need / after - need / before, 0.0)
    return np.maximum(np.maximum(most, some), none)


def _found_near(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut], axes: int) -> Ints:
    """What devices need and find in their group: held × needed × devices."""
    shared = np.ones((len(held), len(needed), mesh.devices), dtype=np.int64)
    for ours, theirs in zip(zip(*held, strict=True), zip(*needed, strict=True), strict=True):
        (own, of_held), (other, of_needed) = _distinct(ours), _distinct(theirs)
        low, high = _ends(mesh, other)
        near = np.zeros((len(own), *low.shape), dtype=np.int64)
        for place, span in enumerate(own):
            for first, last in intervals_within(mesh, span, axes):
                near[place] += np.maximum(np.minimum(high, last) - np.maximum(low, first), 0)
        shared *= near[of_held[:, None], of_needed[None]]
    return shared


def copied(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut]) -> Ints:
    """The elements that the fullest device must copy: a table held × needed.

    What lies inside the held box is a view of it; anything else is assembled as a whole.
    """
    most = np.zeros((len(held), len(needed)), dtype=np.int64)
    for rows, shared, wanted in _shared(mesh, held, needed):
        most[rows] = np.maximum(most[rows], np.where(shared == wanted, 0, wanted).max(axis=2))
    return most


def _shared(
    mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut], first: int = 0
) -> Iterator[tuple[slice, Ints, Ints]]:
    """What devices need and hold, held × needed × devices, and what they need, a portion at a time.

    A portion is some rows of some of the devices: all, or those that are `first` along some axes.
    """
    if not held or not needed:
        return
    _check_count(mesh, len(held), len(needed))
    # For each dimension the ends of distinct spans, and which of them each cut has.
    sides: list[tuple[tuple[Ints, Ints], tuple[Ints, Ints], Ints, Ints]] = []
    for ours, theirs in zip(zip(*held, strict=True), zip(*needed, strict=True), strict=True):
        (own, of_held), (other, of_needed) = _distinct(ours), _distinct(theirs)
        sides.append((_ends(mesh, own), _ends(mesh, other), of_held, of_needed))
    devices = first_along(mesh, first)
    step = max(1, min(len(devices), _CELLS // len(needed)))
    rows = max(1, _CELLS // (len(needed) * step))
    for begin in range(0, len(devices), step):
        some = devices[begin : begin + step]
        shared: list[Ints] = []
        wanted = np.ones((len(needed), len(some)), dtype=np.int64)
        for ours, theirs, _, of_needed in sides:
            low, high, low2, high2 = (end[:, some] for end in (*ours, *theirs))
            both = np.minimum(high[:, None], high2[None]) - np.maximum(low[:, None], low2[None])
            shared.append(np.maximum(both, 0))
            wanted *= (high2 - low2)[of_needed]
        for at in range(0, len(held), rows):
            part = slice(at, min(at + rows, len(held)))
            total: Ints | None = None
            for (_, _, of_held, of_needed), both in zip(sides, shared, strict=True):
                own = both[of_held[part, None], of_needed[None]]
                total = own if total is None else np.multiply(total, own, out=total)
            if total is None:
                total = np.ones((part.stop - at, *wanted.shape), dtype=np.int64)
            yield part, total, wanted[None]


def _check_count(mesh: Mesh, held: int, needed: int) -> None:
    if held * needed * mesh.devices > _MOST:
        layouts = f"{held} × {needed} layouts on {mesh.devices} devices"
        raise UnsolvedError(f"{layouts} are too many to compare")


def _ends(mesh: Mesh, spans: Sequence[Span]) -> tuple[Ints, Ints]:
    ends = [interval(mesh, span) for span in spans]
    return np.stack([low for low, _ in ends]), np.stack([high for _, high in ends])


def _distinct(spans: Sequence[Span]) -> tuple[list[Span], Ints]:
    index: dict[Span, int] = {}
    places = [index.setdefault(span, len(index)) for span in spans]
    return list(index), np.array(places, dtype=np.int64)


def first_along(mesh: Mesh, axes: int) -> Ints:
    """The devices whose coordinates along some axes, given as bits, are all 0."""
    along = [axis for axis in range(len(mesh.sizes)) if axes >> axis & 1]
    return np.flatnonzero((mesh.coordinates[along] == 0).all(axis=0))


def moved(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut], first: int = 0) -> Ints:
    """The elements that devices must receive in all: a table held × needed.

    Of devices that differ along the axes `first`, which cut nothing of what is needed, only the
    first one needs anything.
    """
    wanted = totals(mesh, needed)[None] // parts_of(mesh, first)
    return wanted - overlaps(mesh, held, needed, first)


def lacking(mesh: Mesh, held: Cut, needed: Cut) -> Ints:
    """The elements that each device needs and does not hold."""
    portions = (wanted - shared for _, shared, wanted in _shared(mesh, [held], [needed]))
    return np.concatenate([each[0, 0] for each in portions])


def aligned_overlaps(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut]) -> Ints | None:
    """The elements that devices need and hold, summed: a table held × needed.

    None where some cut is uneven, of a diagonal or of a part of the tensor, or where axes of
    different sizes stand for the same digit.
    """
    aligned = _aligned(mesh, held, needed)
    return None if aligned is None else aligned[0] * aligned[1]


def _aligned(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut]) -> tuple[Ints, Ints] | None:
    """What a device needs and holds, if anything, and on how many devices that is something."""
    ours, theirs = _digits(mesh, held), _digits(mesh, needed)
    if ours is None or theirs is None:
        return None
    sizes = np.array([*mesh.sizes, 0], dtype=np.int64)[np.concatenate([ours, theirs])]
    if ((sizes > 0) & (sizes != sizes.max(axis=0, initial=0))).any():  # -1 is the last
        return None
    for spans in zip(*held, *needed, strict=True):
        if len({(span.start, span.stop) for span in spans}) > 1:
            return None
    tiles = [
        np.array([[largest_side(mesh, span) for span in cut] for cut in cuts], dtype=np.int64)
        for cuts in (held, needed)
    ]
    common, devices = (np.empty((len(held), len(needed)), dtype=np.int64) for _ in range(2))
    rows = max(1, _CELLS // (max(len(needed), 1) * (len(mesh.sizes) + 1)))
    for at in range(0, len(held), rows):
        part = slice(at, at + rows)
        common[part] = np.minimum(tiles[0][part, None], tiles[1][None]).prod(axis=2)
        devices[part] = _devices(mesh, ours[part], theirs)
    return common, devices


def _digits(mesh: Mesh, cuts: Sequence[Cut]) -> Ints | None:
    """Cuts × dimensions × digits: the axis of each, -1 beyond the last; None for uneven cuts."""
    rank = len(cuts[0]) if cuts else 0
    digits = np.full((len(cuts), rank, len(mesh.sizes)), -1, dtype=np.int64)
    uneven = {span for cut in cuts for span in cut if span.units % pieces_by(mesh, span.axes)}
    if uneven or not all(map(is_plain, cuts)):  # images, too, are not plain
        return None
    for i, cut in enumerate(cuts):
        for d, span in enumerate(cut):
            digits[i, d, : len(span.axes)] = span.axes
    return digits


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

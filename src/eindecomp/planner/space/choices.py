"""What a vertex can choose when real bytes count: mesh axes for its labels, a home for its result.

An *assignment* gives every mesh axis to one label; the axes of one label nest in any order. Where
the labels are too small for all axes, some axes stay unused, and all devices along an unused axis
compute the same tile. Devices that sum over the same label hold partial results. A reduce-scatter
combines them and leaves each of those devices a part of the result, its *home* there: every summed
axis either cuts a dimension of the result, inside the tile, or, after an all-gather, replicates it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import compress, product
from math import prod
from typing import NamedTuple

import numpy as np

from eindecomp.errors import UnsolvedError
from eindecomp.layout.cut import (
    Axes,
    Cut,
    bits_of,
    in_mesh_order,
    interleaved,
    parts_of,
    pieces_by,
    span_of,
)
from eindecomp.layout.mesh import Mesh, can_cut
from eindecomp.layout.view import Dims, View
from eindecomp.planner import budgets
from eindecomp.planner.space.viable import most_pieces
from eindecomp.solve.problem.arrays import Ints, Mask

Assignment = tuple[Axes, ...]
"""For each label the axes that cut it, outermost first."""
_UNUSED = -1


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """The cuts in which an input can be needed, and which one each assignment needs."""

    cuts: tuple[Cut, ...]
    of: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """Everything that a vertex can choose.

    To leave its result in home h, assignment a moves the partial result's elements `reduced[a, h]`
    times, then the result's elements `gathered[a, h]` times; both are -1 where h cannot be reached.
    """

    view: View
    mesh: Mesh
    assignments: tuple[Assignment, ...]
    parts: Ints
    reads: tuple[Reads | None, ...]
    homes: tuple[Cut, ...]
    reduced: Ints
    gathered: Ints
    places: dict[tuple[int, int], Places]
    """Where the summed axes of assignment a go to make home h."""

    @property
    def is_settled(self) -> bool:
        """Whether each assignment can reach only one home."""
        return bool(((self.reduced >= 0).sum(axis=1) == 1).all())

    def left_in(self, homes: Mask) -> Choices | None:
        """The choices that leave the result in one of these homes; None if there are none."""
        rows = np.any((self.reduced >= 0) & homes[None], axis=1)
        if not rows.any():
            return None
        new_row, new_home = (np.cumsum(kept) - 1 for kept in (rows, homes))
        return replace(
            self,
            assignments=tuple(compress(self.assignments, rows)),
            parts=self.parts[rows],
            reads=tuple(
                None if own is None else Reads(own.cuts, own.of[rows]) for own in self.reads
            ),
            homes=tuple(compress(self.homes, homes)),
            reduced=self.reduced[rows][:, homes],
            gathered=self.gathered[rows][:, homes],
            places={
                (int(new_row[a]), int(new_home[h])): places
                for (a, h), places in self.places.items()
                if rows[a] and homes[h]
            },
        )


def unassigned(view: View) -> Assignment:
    """The assignment that uses no axis."""
    return ((),) * len(view.labels)


def summed_axes(view: View, assignment: Assignment) -> int:
    """The axes that cut a label which is aggregated, as bits."""
    return bits_of(tuple(axis for i in view.aggregated for axis in assignment[i]))


@lru_cache(maxsize=1 << 12)
def refined(
    sizes: tuple[int, ...],
    mesh: Mesh,
    base: Assignment,
    axes: Axes,
    redundant: bool = False,
) -> tuple[Assignment, ...]:
    """Every way to give these axes to labels, all others as in `base`.

    Within a label, they nest in mesh order; `nestings` has all other orders.
    """
    most = most_pieces(sizes, mesh.sizes, even=mesh.cuts_evenly)
    labels = range(_UNUSED if redundant or most < mesh.devices else 0, len(sizes))
    rows = np.array(list(product(labels, repeat=len(axes))), dtype=np.int64)
    kept = tuple(tuple(a for a in own if a not in axes) for own in base)
    before = np.array([pieces_by(mesh, own) for own in kept], dtype=np.int64)
    extents = np.array([mesh.sizes[a] for a in axes], dtype=np.int64)
    parts = np.ones((len(rows), len(sizes)), dtype=np.int64) * before
    for label in range(len(sizes)):
        parts[:, label] *= np.where(rows == label, extents, 1).prod(axis=1)
    fits = can_cut(mesh.pieces, np.array(sizes, dtype=np.int64), parts).all(axis=1)
    if not redundant:
        fits &= parts.prod(axis=1) == most
    uneven = (np.array(sizes, dtype=np.int64) % np.maximum(parts, 1) != 0).sum(axis=1)
    left = np.flatnonzero(fits)
    left = left[np.argsort(uneven[left], kind="stable")]
    return tuple(_with_axes(kept, row, axes) for row in rows[left].tolist())


def _with_axes(kept: Assignment, row: Sequence[int], axes: Axes) -> Assignment:
    """An assignment to which axes are added, each to one label."""
    added: list[list[int]] = [[] for _ in kept]
    for axis, label in zip(axes, row, strict=True):
        if label != _UNUSED:
            added[label].append(axis)
    return tuple(
        in_mesh_order(own, tuple(more)) if more else own
        for own, more in zip(kept, added, strict=True)
    )


def nestings(
    rows: Iterable[Assignment], axes: Axes, seen: Sequence[bool]
) -> tuple[Assignment, ...]:
    """The assignments with these axes nested in any order among and between the others.

    That is for labels whose cut someone else sees; the order of others makes no difference. The
    given assignments come first.
    """
    given = tuple(rows)
    others: list[Assignment] = []
    for row in given:
        ways: list[Iterable[Axes]] = []
        for own, matters in zip(row, seen, strict=True):
            kept, moved = (tuple(a for a in own if (a in axes) == is_moved) for is_moved in (0, 1))
            ways.append(interleaved(kept, moved) if matters else (own,))
        others += product(*ways)
    return tuple(dict.fromkeys((*given, *others)))


def ways(labels: int, axes: int, *, any_order: bool = True) -> int:
    """The most assignments of axes to labels that there can be.

    >>> ways(3, 2), ways(3, 2, any_order=False)
    (12, 9)
    """
    if not any_order:
        return labels**axes
    return prod(range(labels, labels + axes))


def parts_of_assignments(rows: Sequence[Assignment], mesh: Mesh, labels: int) -> Ints:
    """Into how many pieces each assignment cuts each label."""
    parts = [[pieces_by(mesh, own) for own in row] for row in rows]
    return np.array(parts, dtype=np.int64).reshape(len(rows), labels)


@lru_cache(maxsize=1 << 12)
def choices(
    view: View,
    mesh: Mesh,
    assignments: tuple[Assignment, ...],
    settled: Settled | None = None,
    *,
    any_order: bool = False,
) -> Choices:
    """The choices that these assignments leave a vertex.

    `settled` gives the places of axes whose places are already decided. With `any_order`, what a
    reduce-scatter cuts nests in any order inside the tile, otherwise in mesh order.
    """
    pairs = tuple((own, settled) for own in assignments)
    return _choices(view, mesh, pairs, any_order=any_order)


Option = tuple[Assignment, "Places"]
"""An assignment, and where its summed axes go."""


@lru_cache(maxsize=1 << 12)
def listed_choices(view: View, mesh: Mesh, options: tuple[Option, ...]) -> Choices:
    """The choices among these options."""
    every = (1 << len(mesh.sizes)) - 1
    pairs = tuple((own, Settled(places, every)) for own, places in options)
    return _choices(view, mesh, pairs, any_order=False)


def _choices(
    view: View,
    mesh: Mesh,
    pairs: Sequence[tuple[Assignment, Settled | None]],
    *,
    any_order: bool,
) -> Choices:
    number = {own: a for a, own in enumerate(dict.fromkeys(own for own, _ in pairs))}
    assignments = tuple(number)
    reads = tuple(None if dims is None else _reads(view, dims, assignments) for dims in view.reads)
    homes: dict[Cut, int] = {}
    ways: dict[tuple[int, int], WayHome] = {}
    for own, settled in pairs:
        for home, way in homes_of(view, mesh, own, settled, any_order=any_order):
            key = (number[own], homes.setdefault(home, len(homes)))
            if key not in ways or way.gathered < ways[key].gathered:
                ways[key] = way
    if len(number) * len(homes) > budgets.ALL_CELLS:
        raise UnsolvedError(f"{len(number)} ways to cut a vertex, {len(homes)} to leave its result")
    reduced = np.full((len(assignments), len(homes)), -1, dtype=np.int64)
    gathered = reduced.copy()
    for key, way in ways.items():
        reduced[key], gathered[key] = way.reduced, way.gathered
    places = {key: way.places for key, way in ways.items()}
    parts = parts_of_assignments(assignments, mesh, len(view.labels))
    return Choices(view, mesh, assignments, parts, reads, tuple(homes), reduced, gathered, places)


def cut_of(view: View, dims: Dims, assignment: Assignment) -> Cut:
    """The cut of a tensor's dimensions under an assignment."""
    return tuple(
        span_of(dim, () if (i := view.index(dim)) is None else assignment[i]) for dim in dims
    )


def _reads(view: View, dims: Dims, assignments: Sequence[Assignment]) -> Reads:
    index: dict[Cut, int] = {}
    of = [index.setdefault(cut_of(view, dims, own), len(index)) for own in assignments]
    return Reads(tuple(index), np.array(of, dtype=np.int64))


class Layouts(NamedTuple):
    """Where a tensor lies: its home, and a second layout if it is kept in one."""

    home: Cut
    second: Cut | None = None

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The layouts that readers can fetch from."""
        return (self.home,) if self.second is None else (self.home, self.second)


@dataclass(frozen=True, slots=True)
class Decision:
    """What was chosen for one vertex."""

    assignment: Assignment
    places: Places
    home: Cut
    second: Cut | None = None

    @property
    def layouts(self) -> Layouts:
        """Where the result lies."""
        return Layouts(self.home, self.second)


def decided_choices(view: View, mesh: Mesh, decision: Decision) -> Choices:
    """A vertex's choices when a decision leaves only one."""
    return listed_choices(view, mesh, ((decision.assignment, decision.places),))


def parts_by_label(view: View, mesh: Mesh, decision: Decision) -> dict[str, int]:
    """Into how many pieces a decision cuts each label."""
    return {
        label: pieces_by(mesh, axes)
        for label, axes in zip(view.labels, decision.assignment, strict=True)
    }


Places = tuple[Axes, ...]
"""For each dimension of the result the summed axes that cut it further, outermost first.

A summed axis that is in none of them replicates the result.
"""
_REPLICATED = -1


class Settled(NamedTuple):
    """Where some of the summed axes go, as was decided before; all others may go anywhere."""

    places: Places
    axes: int
    """Which axes are settled, as bits."""


class WayHome(NamedTuple):
    """How a home is reached, and how often elements move on the way, all devices together."""

    reduced: int
    """How many times the partial result's elements move: the reduce-scatter."""
    gathered: int
    """How many times the result's elements move afterwards: the all-gather."""
    places: Places


def homes_of(
    view: View,
    mesh: Mesh,
    assignment: tuple[Axes, ...],
    settled: Settled | None = None,
    *,
    any_order: bool = False,
) -> list[tuple[Cut, WayHome]]:
    """The homes of one assignment and the ways there.

    Where the places that are settled for some axes leave no room for what others now cut, those
    axes replicate the result.
    """
    reached = list(_homes_of(view, mesh, assignment, settled, any_order=any_order))
    if not reached and settled is not None:
        replicated = Settled(((),) * len(view.output), settled.axes)
        reached = list(_homes_of(view, mesh, assignment, replicated, any_order=any_order))
    return reached


def _homes_of(
    view: View,
    mesh: Mesh,
    assignment: tuple[Axes, ...],
    settled: Settled | None,
    *,
    any_order: bool,
) -> Iterator[tuple[Cut, WayHome]]:
    tile = [() if (i := view.index(dim)) is None else assignment[i] for dim in view.output]
    summed = tuple(sorted(axis for i in view.aggregated for axis in assignment[i]))
    groups = mesh.devices // pieces_by(mesh, tuple(axis for own in assignment for axis in own))
    ways = pieces_by(mesh, summed)
    for places in _places(summed, len(tile), settled, any_order=any_order):
        home = tuple(
            span_of(dim, (*own, *inner))
            for dim, own, inner in zip(view.output, tile, places, strict=True)
        )
        sizes = ((span.units, pieces_by(mesh, span.axes)) for span in home)
        if all(pieces == 1 or can_cut(mesh.pieces, units, pieces) for units, pieces in sizes):
            scattered = sum(bits_of(inner) for inner in places)
            copies = ways // parts_of(mesh, scattered)
            yield home, WayHome(groups * (ways - 1), groups * (copies - 1), places)


def _places(
    summed: Axes, dimensions: int, settled: Settled | None, *, any_order: bool
) -> Iterator[Places]:
    """Every way to place the summed axes on dimensions of the result."""
    fixed = 0 if settled is None else settled.axes
    before: Places = ((),) * dimensions if settled is None else settled.places
    kept = tuple(tuple(a for a in own if fixed >> a & 1 and a in summed) for own in before)
    free = tuple(axis for axis in summed if not fixed >> axis & 1)
    for row in product(range(_REPLICATED, dimensions), repeat=len(free)):
        added = [
            tuple(axis for axis, place in zip(free, row, strict=True) if place == d)
            for d in range(dimensions)
        ]
        pairs = zip(kept, added, strict=True)
        if not any_order:
            yield tuple(in_mesh_order(own, more) for own, more in pairs)
        else:
            yield from product(*(interleaved(own, more) for own, more in pairs))

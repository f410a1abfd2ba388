"""What a vertex can choose when real bytes count: mesh axes for its labels, a home for its result.

An *assignment* gives every mesh axis to one label; the axes of one label nest in any order. Where
the labels are too small for all axes, some axes stay unused, and all devices along an unused axis
compute the same tile. Devices that sum over the same label hold partial results. A reduce-scatter
combines them and leaves each of those devices a part of the result, its *home* there: every summed
axis either cuts a dimension of the result, inside the tile, or, after an all-gather, replicates it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    image_of,
    in_mesh_order,
    interleaved,
    pending_in,
    pending_span,
    pieces_by,
    span_of,
)
from eindecomp.layout.mesh import Mesh, can_cut
from eindecomp.layout.view import Dims, View, Way
from eindecomp.planner import budgets
from eindecomp.planner.space.homes import Places, Settled, WayHome, homes_of
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
    """The axes along which a result is in parts, as bits: of aggregated labels, and of ways."""
    return bits_of(tuple(axis for i in view.aggregated for axis in assignment[i]))


@lru_cache(maxsize=1 << 12)
def refined(
    sizes: tuple[int, ...],
    mesh: Mesh,
    base: Assignment,
    axes: Axes,
    redundant: bool = False,
    ways: int = 0,
) -> tuple[Assignment, ...]:
    """Every way to give these axes to labels, all others as in `base`.

    Within a label, they nest in mesh order; `nestings` has all other orders. The last labels may be
    `ways` to read operands in parts: then the others are cut by as many of the other axes as fit.
    """
    own = len(sizes) - ways
    most = most_pieces(sizes[:own], mesh.sizes, even=mesh.cuts_evenly)
    labels = range(_UNUSED if redundant or most < mesh.devices else 0, len(sizes))
    rows = np.array(list(product(labels, repeat=len(axes))), dtype=np.int64)
    kept = tuple(tuple(a for a in own if a not in axes) for own in base)
    before = np.array([pieces_by(mesh, own) for own in kept], dtype=np.int64)
    extents = np.array([mesh.sizes[a] for a in axes], dtype=np.int64)
    parts = np.ones((len(rows), len(sizes)), dtype=np.int64) * before
    for label in range(len(sizes)):
        parts[:, label] *= np.where(rows == label, extents, 1).prod(axis=1)
    fits = can_cut(mesh.pieces, np.array(sizes, dtype=np.int64), parts).all(axis=1)
    if ways:
        fits &= parts[:, own:].prod(axis=1) <= max(sizes[own:])
        waiting = sum(bits_of(axes) for axes in kept[own:]) + (rows >= own) @ (1 << np.array(axes))
        most = _most_beside(sizes[:own], mesh, waiting)
    if not redundant:
        fits &= parts[:, :own].prod(axis=1) == most
    uneven = (np.array(sizes, dtype=np.int64) % np.maximum(parts, 1) != 0).sum(axis=1)
    left = np.flatnonzero(fits)
    left = left[np.argsort(uneven[left], kind="stable")]
    return tuple(_with_axes(kept, row, axes) for row in rows[left].tolist())


def _most_beside(sizes: tuple[int, ...], mesh: Mesh, waiting: Ints) -> Ints:
    """The most pieces that labels can be cut into by axes that do not wait, given as bits."""
    distinct, of = np.unique(waiting, return_inverse=True)
    axes = range(len(mesh.sizes))
    left = [tuple(mesh.sizes[a] for a in axes if not bits >> a & 1) for bits in distinct.tolist()]
    most = [most_pieces(sizes, factors, even=mesh.cuts_evenly) for factors in left]
    return np.array(most, dtype=np.int64)[of.reshape(-1)]


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


Option = tuple[Assignment, Places]
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
    reads = tuple(
        None if dims is None else _reads(view, mesh, k, assignments)
        for k, dims in enumerate(view.reads)
    )
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

    def axes_of(label: str | None) -> Axes:
        return assignment[view.labels.index(label)] if label in view.labels else ()

    return tuple(
        span_of(dim, axes_of(dim.label)) if dim.image is None else image_of(dim, dim.image, axes_of)
        for dim in dims
    )


def needed_cut(view: View, mesh: Mesh, k: int, assignment: Assignment) -> Cut:
    """The cut in which operand k is read, along the axes of ways to read it pending."""
    cut = cut_of(view, view.reads[k] or (), assignment)
    if not view.ways:
        return cut
    own = zip(view.ways, assignment[len(view.cut_labels) :], strict=True)
    axes = [axis for way, axes in own if k in way.operands for axis in axes]
    return (*cut, pending_span(mesh, axes, view.ways[0].agg)) if axes else cut


def _reads(view: View, mesh: Mesh, k: int, assignments: Sequence[Assignment]) -> Reads:
    index: dict[Cut, int] = {}
    of = [index.setdefault(needed_cut(view, mesh, k, own), len(index)) for own in assignments]
    return Reads(tuple(index), np.array(of, dtype=np.int64))


class Layouts(NamedTuple):
    """Where a tensor lies: its home, and a second layout if it is kept in one."""

    home: Cut
    second: Cut | None = None

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The layouts that readers can fetch from."""
        return (self.home,) if self.second is None else (self.home, self.second)


class Wait(NamedTuple):
    """Axes along which a vertex reads operands in parts that ⊕ has still to combine.

    Operands that are whole there are read as if they were: one device has them, the others the
    identity of ⊕, or all have them where ⊕ repeated changes nothing. All others are read whole.
    """

    axes: Axes
    operands: tuple[int, ...]
    agg: str
    """The name of ⊕."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was chosen for one vertex."""

    assignment: Assignment
    places: Places
    home: Cut
    second: Cut | None = None
    waits: tuple[Wait, ...] = ()

    @property
    def layouts(self) -> Layouts:
        """Where the result lies."""
        return Layouts(self.home, self.second)


def decided_choices(view: View, mesh: Mesh, decision: Decision) -> Choices:
    """A vertex's choices when a decision leaves only one."""
    left = pending_in(decision.home)
    is_outward = len(decision.assignment) == len(view.cut_labels)
    if is_outward and (decision.waits or left is not None):
        ways = tuple(Way(wait.operands, wait.agg) for wait in decision.waits)
        view = view.waiting(ways, mesh.devices, "" if left is None else left.pending)
    waiting = tuple(wait.axes for wait in decision.waits)
    return listed_choices(view, mesh, (((*decision.assignment, *waiting), decision.places),))


def outward(view: View, decision: Decision) -> Decision:
    """A decision in which labels and dimensions are only those of the vertex itself.

    Axes of ways to read parts, behind those of labels inside a search, have waits of their own.
    """
    own = decision.assignment[: len(view.cut_labels)]
    ways = zip(view.ways, decision.assignment[len(own) :], strict=True)
    waits = tuple(Wait(axes, way.operands, way.agg) for way, axes in ways if axes)
    left = pending_in(decision.home)
    places = decision.places if left is not None else decision.places[: len(view.output)]
    return replace(decision, assignment=own, places=places, waits=waits)


def parts_by_label(view: View, mesh: Mesh, decision: Decision) -> dict[str, int]:
    """Into how many pieces a decision cuts each label."""
    return {
        label: pieces_by(mesh, axes)
        for label, axes in zip(view.labels, decision.assignment, strict=True)
    }

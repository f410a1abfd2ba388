"""The least that a plan can cost, in bytes and in seconds, by numbers of pieces alone.

For seconds, pieces are counted on each *level* of the mesh, a run of neighbouring axes that are
alike: of one size and with equal links. How many axes of each level cut a label decides what
computing and reducing take, and bounds what fetching takes: devices that agree on all outer levels
form a group, and what a group needs and does not hold must cross these levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from math import inf, prod
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from eindecomp.graph.vertex import Vertex
from eindecomp.lang.homomorphism import IDEMPOTENT
from eindecomp.layout.cut import combined
from eindecomp.layout.mesh import ROWS, Mesh
from eindecomp.planner.costs.collectives import rounds_of
from eindecomp.planner.costs.machine import COLLECTIVES, FETCHES, Collective, Curve, Line, Machine
from eindecomp.planner.costs.price import PriceInBytes, PriceInSeconds
from eindecomp.planner.space.choices import Choices
from eindecomp.planner.space.pieces import PieceCount, PieceCounts
from eindecomp.solve.problem.arrays import Floats, Ints, Mask, infinite_where


@dataclass(frozen=True)
class LeastBytes:
    """The fewest bytes that a movement can take, whichever axes cut which labels."""

    mesh: Mesh

    @property
    def by_rows(self) -> bool:
        """Whether lookups and scatters move only rows that an index names."""
        return self.mesh.lookups == ROWS

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """All axes are one level."""
        return (self.mesh.sizes,)

    def fetch(self, held: Sequence[PieceCounts], needed: Sequence[PieceCounts], item: int) -> Any:
        """Each device keeps at most the smaller tile side of each dimension, and what it holds.

        Parts are read where they lie; of a tensor that is whole, one of so many devices reads it.
        """
        have, want = _parts(held), _parts(needed)
        if (have.max(initial=1), want.max(initial=1)) == (1, 1):
            return item * self._lacking(held, needed, want)
        own, other = ([combined(cut) for cut in cuts] for cuts in (held, needed))
        lacks = item * self._lacking(own, other, _among(needed))
        in_parts, fits = have[:, None] > 1, want[None] % have[:, None] == 0
        return infinite_where(in_parts & ~fits, np.where(in_parts, 0, lacks))

    def _lacking(
        self, held: Sequence[PieceCounts], needed: Sequence[PieceCounts], among: Ints
    ) -> Ints:
        """The elements that devices lack at least, where one `among` so many needs them."""
        (ours, kept), (theirs, total) = self._measured(held), self._measured(needed)
        # Of a diagonal, devices may need nothing, and hold more than is counted.
        total = (np.where(np.isinf(total), 0.0, total) // among)[None]
        common = np.full((len(held), len(needed)), self.mesh.devices, dtype=np.float64)
        for own, other in zip(ours.T, theirs.T, strict=True):
            common *= np.minimum(own[:, None], other[None])
        common = common / among[None]
        return np.maximum(total - np.minimum(common, kept[:, None]), 0).astype(np.int64)

    def reduce_scatter(self, choices: Choices, elements: int, partial: int, item: int) -> Any:
        """The same whichever axes are chosen."""
        return PriceInBytes(self.mesh).reduce_scatter(choices, elements, partial, item)

    def compute(self, vertex: Vertex, choices: Choices, items: tuple[int, ...]) -> Any:
        """Computing is free."""
        return PriceInBytes(self.mesh).compute(vertex, choices, items)

    def held(self, cuts: Sequence[PieceCounts], item: int) -> Any:
        """The same whichever axes are chosen."""
        tiles, _ = self._measured([combined(cut) for cut in cuts])
        return item * self.mesh.devices * tiles.prod(axis=1).astype(np.int64)

    def needed(self, needed: Sequence[PieceCounts]) -> Floats:
        """The fewest elements that all devices can need; for a diagonal, none."""
        _, totals = self._measured([combined(cut) for cut in needed])
        return np.where(np.isinf(totals), 0.0, totals) / _among(needed)

    def _measured(self, cuts: Sequence[PieceCounts]) -> tuple[Floats, Floats]:
        return _measured(tuple(cuts), self.mesh.devices)


@lru_cache(maxsize=1 << 9)
def _measured(cuts: tuple[PieceCounts, ...], devices: int) -> tuple[Floats, Floats]:
    """The sides of the largest tile of each cut, and what all devices have of it together.

    That is every piece as often as it lies there; pieces of uneven sizes add up to the whole. Of a
    diagonal, where one label is cut in two dimensions, it is unknown: ∞.
    """
    tiles = [[_tile(side) for side in sides] for sides in cuts]
    totals = [
        inf
        if _is_diagonal(sides)
        else prod(side.stop for side in sides) * devices // prod(side.parts for side in sides)
        for sides in cuts
    ]
    sides = np.array(tiles, dtype=np.float64).reshape(len(cuts), len(cuts[0]) if cuts else 0)
    return sides, np.array(totals, dtype=np.float64)


def _parts(cuts: Sequence[PieceCounts]) -> Ints:
    """In how many parts each cut is pending."""
    parts = [cut[-1].parts if cut and cut[-1].pending else 1 for cut in cuts]
    return np.array(parts, dtype=np.int64)


def _among(needed: Sequence[PieceCounts]) -> Ints:
    """Of how many devices only one needs each cut, where the others read the identity of ⊕."""
    repeats = any(cut[-1].pending in IDEMPOTENT for cut in needed if cut)
    return np.ones(len(needed), dtype=np.int64) if repeats else _parts(needed)


def _is_diagonal(sides: PieceCounts) -> bool:
    """Whether one label is cut in two dimensions."""
    labels = [side.label for side in sides if side.label is not None]
    return len(set(labels)) < len(labels)


def _tile(side: PieceCount) -> int:
    return -(-side.units // side.parts) * side.scale


_ROUNDING = 1e-12


class LinkLevel(NamedTuple):
    """The axes of one level: their size and number, and what fetching along one takes."""

    size: int
    axes: int
    fetch: Line
    """No fetch along one is below it, whatever its size and collective."""
    first: int
    """The outermost of them; all are alike."""


def links_of(mesh: Mesh, machine: Machine) -> tuple[LinkLevel, ...]:
    """The levels of a mesh, outermost first."""
    axes = [
        (size, tuple(_carried(machine, kind, name, size) for kind in COLLECTIVES))
        for name, size in zip(mesh.names, mesh.sizes, strict=True)
    ]
    links: list[LinkLevel] = []
    for (size, _), run in groupby(enumerate(axes), key=itemgetter(1)):
        alike = [axis for axis, _ in run]
        carried = [_carried(machine, kind, mesh.names[alike[0]], size) for kind in FETCHES]
        lines = [each.floor if isinstance(each, Curve) else each for each in carried]
        start, pace = (min(of) for of in zip(*lines, strict=True))
        links.append(LinkLevel(size, len(alike), Line(start, pace), alike[0]))
    return tuple(links)


def _carried(machine: Machine, kind: Collective, axis: str, size: int) -> Curve | Line:
    """What a collective takes along an axis: measured, or by latency and bandwidth."""
    if (curve := machine.curve_of(kind, axis)) is not None:
        return curve
    start = machine.task_overhead + machine.latency_of(axis)
    return Line(start * rounds_of(machine.rounds, (size,)), 1 / machine.bandwidth_of(axis))


@dataclass(frozen=True)
class LeastSeconds:
    """The fewest seconds that anything can take, whichever axes of a level cut which labels."""

    price: PriceInSeconds
    fine: bool = False
    """Whether every axis but those of the innermost level is a level of its own.

    Pieces then say which outer axes cut a label, which matters most: their links are the slowest.
    """

    @property
    def mesh(self) -> Mesh:
        """The mesh that things move on."""
        return self.price.mesh

    @cached_property
    def links(self) -> tuple[LinkLevel, ...]:
        """The levels of the mesh."""
        links = links_of(self.mesh, self.price.machine)
        apart = [link._replace(axes=1) for link in links[:-1] for _ in range(link.axes)]
        return (*apart, *links[-1:]) if self.fine else links

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """The sizes of the axes of each level."""
        return tuple((link.size,) * link.axes for link in self.links)

    def fetch(self, held: Sequence[PieceCounts], needed: Sequence[PieceCounts], item: int) -> Any:
        """What must cross the outer levels, over the widest link that it could cross.

        What is read in parts may be there already.
        """
        have, want = _parts(held), _parts(needed)
        own, other = ([combined(cut) for cut in cuts] for cuts in (held, needed))
        seconds = np.where(
            (have[:, None] > 1) | (want[None] > 1), 0.0, self._whole(own, other, item)
        )
        return infinite_where((have[:, None] > 1) & (want[None] % have[:, None] > 0), seconds)

    def _whole(self, held: Sequence[PieceCounts], needed: Sequence[PieceCounts], item: int) -> Any:
        """The same between cuts without parts."""
        total = LeastBytes(self.mesh).needed(needed)[None]
        seconds = np.zeros((len(held), len(needed)))
        found, before, crossed = (np.zeros(seconds.shape) for _ in range(3))
        even = self._are_even(held, needed)
        apart = _apart(held, needed, self.links)
        pace, latency = np.inf, np.inf
        for level, link in enumerate(self.links):
            # What misses here may have come through any link further out.
            pace, latency = min(pace, link.fetch.pace), min(latency, link.fetch.start)
            shared = self._shared(held, needed, level)
            shared = shared / np.where(even, float(link.size) ** apart[level], 1.0)
            missing = np.maximum(np.maximum(total - shared, 0), found)
            entering = np.maximum(missing / self._sharing(held, needed, level), before)
            seconds += (entering - before) * (item / self.mesh.devices) * pace
            axes = np.maximum(_crossed(total, missing, link.size, even), crossed)
            seconds += (axes - crossed) * latency
            found, before, crossed = missing, entering, axes
        return seconds * (1 - _ROUNDING)

    def _are_even(self, held: Sequence[PieceCounts], needed: Sequence[PieceCounts]) -> Mask:
        """Where pieces are named by coordinates as numbers are by digits, all of the same base."""
        alike = len(set(self.mesh.sizes)) <= 1
        even = np.full((len(held), len(needed)), alike, dtype=bool)
        for ours, theirs in zip(zip(*held, strict=True), zip(*needed, strict=True), strict=True):
            whole = np.array([side.stop for side in ours])[:, None] == [s.stop for s in theirs]
            own, other = ([s.units % s.parts == 0 for s in sides] for sides in (ours, theirs))
            even &= whole & np.logical_and.outer(own, other)
        return even

    def _shared(
        self, held: Sequence[PieceCounts], needed: Sequence[PieceCounts], level: int
    ) -> Floats:
        """The most elements that devices can need and find in their group, summed."""
        shared = np.full((len(held), len(needed)), float(self.mesh.devices))
        for ours, theirs in zip(zip(*held, strict=True), zip(*needed, strict=True), strict=True):
            own, _ = _of_group(ours, level)
            other, inner = _of_group(theirs, level)
            shared *= np.minimum(own[:, None], other[None]) / inner[None]
        return shared

    def _sharing(
        self, held: Sequence[PieceCounts], needed: Sequence[PieceCounts], level: int
    ) -> Floats:
        """The most devices of a group that can share what comes in: their axes cut `held` only."""
        inside = prod(link.size**link.axes for link in self.links[level + 1 :])
        own, other = (
            np.array(
                [prod(n for side in sides for n in side.levels[level + 1 :]) for sides in cuts]
            )
            for cuts in (held, needed)
        )
        return np.maximum(np.minimum(own[:, None], inside / other[None]), 1)

    def reduce_scatter(self, choices: Choices, elements: int, partial: int, item: int) -> Any:
        """The same whichever axes of a level are chosen."""
        summed, spread, left = self._summed(choices)
        view = choices.view
        out = [i for i in range(len(view.labels)) if i not in view.aggregated]
        tiles: Ints = np.maximum(choices.parts[:, out].prod(axis=1), 1)
        size: Floats = (elements * partial / tiles)[:, None]
        seconds = np.zeros(choices.reduced.shape)
        for level, link in reversed(list(enumerate(self.links))):
            ways = link.size
            for turn in range(link.axes):
                takes = summed[:, level, None] - left[None, :, level] > turn
                moved = size * (ways - 1) / ways
                cost = self.price.link(link.first, moved, "reduce_scatter")
                seconds += np.where(takes, cost, 0.0)
                size = size / np.where(takes, ways, 1)
        size = size * np.where(left.any(axis=1), 1.0, item / partial)[None]
        for level, link in enumerate(self.links):
            ways = link.size
            for turn in range(link.axes):
                takes = summed[:, level, None] - left[None, :, level] - spread[:, :, level] > turn
                cost = self.price.link(link.first, size * (ways - 1), "all_gather")
                seconds += np.where(takes, cost, 0.0)
                size = size * np.where(takes, ways, 1)
        return infinite_where(choices.reduced < 0, seconds * (1 - _ROUNDING))

    def _summed(self, choices: Choices) -> tuple[Ints, Ints, Ints]:
        """Axes of each level that a vector sums over, those that then cut each home further, and
        those along which a home is left in parts."""
        levels = len(self.links)
        base = np.log([link.size for link in self.links])
        rows: Any = np.array(choices.assignments, dtype=np.float64)
        rows = rows.reshape(len(choices.assignments), len(choices.view.labels), levels)
        axes = np.rint(np.log(rows) / base).astype(np.int64)
        aggregated = list(choices.view.aggregated)
        dims = [i for dim in choices.view.output if (i := choices.view.index(dim)) is not None]
        homes: Any = choices.homes
        cuts = [combined(home) for home in homes]
        each = [[prod(side.levels[k] for side in cut) for k in range(levels)] for cut in cuts]
        pieces = np.array(each, dtype=np.float64).reshape(len(homes), levels)
        placed = np.rint(np.log(pieces) / base).astype(np.int64)
        parts = [home[-1].levels if home and home[-1].pending else (1,) * levels for home in homes]
        left = np.rint(np.log(np.array(parts, dtype=np.float64)) / base).astype(np.int64)
        spread = placed[None] - axes[:, dims].sum(axis=1)[:, None]
        return axes[:, aggregated].sum(axis=1), spread, left.reshape(len(homes), levels)

    def compute(self, vertex: Vertex, choices: Choices, items: tuple[int, ...]) -> Any:
        """The same whichever axes are chosen."""
        return self.price.compute(vertex, choices, items) * (1 - _ROUNDING)

    def hides(
        self, vertex: Vertex, choices: Choices, items: tuple[int, ...], fetches: int
    ) -> Any | None:
        """The same whichever axes are chosen."""
        return self.price.hides(vertex, choices, items, fetches)

    def held(self, cuts: Sequence[PieceCounts], item: int) -> Any:
        """The same as for bytes."""
        return LeastBytes(self.mesh).held(cuts, item)


def _of_group(sides: Sequence[PieceCount], level: int) -> tuple[Floats, Floats]:
    """What a group has of a dimension, at most, and in how many pieces."""
    elements: list[int] = []
    pieces: list[int] = []
    for side in sides:
        inner = prod(side.levels[level + 1 :])
        elements.append(min(side.stop, inner * _tile(side)))
        pieces.append(inner)
    return np.array(elements, dtype=np.float64), np.array(pieces, dtype=np.float64)


def _crossed(total: Floats, missing: Floats, size: int, even: Mask) -> Floats:
    """The axes that are crossed, at least: one where something misses.

    Where pieces are even, devices that agree on one more axis find as much as those before them did
    or, of n coordinates of that axis, at least one n-th of it.
    """
    shared = np.maximum(total - missing, _ROUNDING * np.maximum(total, 1))
    times = np.ceil(np.log(np.maximum(total, 1) / shared) / np.log(size) - 1e-6)
    some = missing > _ROUNDING * total
    return np.where(some, np.where(even, np.maximum(times, 1), 1.0), 0.0)


def _apart(
    held: Sequence[PieceCounts], needed: Sequence[PieceCounts], links: tuple[LinkLevel, ...]
) -> list[Ints]:
    """The fewest coordinates of a device that must be equal for its group to hold what it needs.

    For each level, where pieces are even. Digits of both pieces that stand for axes of different
    levels make two coordinates equal; of equalities that close a cycle, half are for nothing, at
    most. A group holds whatever its inner axes cut.
    """
    if not links:
        return []  # one device has all it needs
    base = np.log([link.size for link in links])
    equal = [np.zeros((len(held), len(needed))) for _ in links]
    for ours, theirs in zip(zip(*held, strict=True), zip(*needed, strict=True), strict=True):
        own, other = (np.log([side.levels for side in sides]) / base for sides in (ours, theirs))
        outer, same = own.cumsum(axis=1), np.zeros(equal[0].shape)
        for level, (mine, yours) in enumerate(zip(outer.T, other.cumsum(axis=1).T, strict=True)):
            same += np.minimum(own[:, None, level], other[None, :, level])
            equal[level] += np.minimum(mine[:, None], yours[None]) - same
    return [np.ceil(np.maximum(each, 0) / 2 - 1e-6).astype(np.int64) for each in equal]

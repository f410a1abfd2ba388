"""Finds runs of variables that repeat periodically, and where to cut them into blocks.

Variables `i` and `i + period` are alike if they have the same tables, with neighbours at the same
distances and with the same hubs. A *hub* is a variable that all blocks share, as the layers of a
model may share a table of rotary angles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eindecomp.solve import budgets
from eindecomp.solve.problem.arrays import Ints, offsets
from eindecomp.solve.problem.cost_network import NONE, CostNetwork

Hashes = NDArray[np.uint64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """Blocks of `period` variables from `start` on.

    `cut` holds the positions within a block of the variables that the next block is joined to;
    `hubs` are the variables that all blocks are joined to.
    """

    start: int
    period: int
    blocks: int
    cut: Ints
    hubs: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Links:
    """Which variables each table joins, one row per table, and the table's number."""

    size: int
    scopes: Ints
    table: Ints
    hubs: Mask

    @property
    def held(self) -> Mask:
        """Which entries of the scopes are variables, not padding."""
        return self.scopes != NONE

    @property
    def to_hub(self) -> Mask:
        """Which entries of the scopes are hubs."""
        return self.hubs[self.scopes] & self.held

    def touching(self, start: int, stop: int) -> Mask:
        """Which rows have a variable in a range."""
        return np.any((self.scopes >= start) & (self.scopes < stop), axis=1)


def find_repeats(network: CostNetwork, scopes: Ints) -> Repeats | None:
    """The best run to fold, cut where the fewest joint choices cross; None if nothing repeats."""
    sizes = np.array(network.sizes, dtype=np.int64)
    links = _links(network, scopes)
    for start, stop, period in _runs(sizes, links):
        begin, cut = _best_cut(sizes, links, start, period)
        blocks = (stop - begin) // period
        if blocks >= budgets.FEWEST_BLOCKS and cut.size:
            used = np.unique(links.scopes[links.touching(begin, stop)])
            hubs = np.intersect1d(used, np.flatnonzero(links.hubs))
            return Repeats(begin, period, blocks, cut, hubs)
    return None


def _links(network: CostNetwork, scopes: Ints) -> _Links:
    known: dict[int, int] = {}
    table = [known.setdefault(id(table), len(known)) for _, table in network.tables]
    size = len(network.sizes)
    return _Links(size, scopes, np.array(table, dtype=np.int64), _hubs(scopes, size))


def _hubs(scopes: Ints, size: int) -> Mask:
    """Variables with many neighbours, the middle half of which lie far apart.

    The one with the most neighbours is picked first, and no longer counts as a neighbour.
    """
    hubs = np.zeros(size, dtype=bool)
    width = scopes.shape[1]
    pairs = [scopes[:, [i, j]] for i in range(width) for j in range(width) if i != j]
    arcs = np.concatenate([np.zeros((0, 2), dtype=np.int64), *pairs])
    arcs = arcs[(arcs != NONE).all(axis=1)]
    for _ in range(budgets.MOST_HUBS):
        degree, spread = _spread_of_neighbours(arcs, size)
        candidates = np.flatnonzero((degree >= budgets.FEWEST_BLOCKS) & (4 * spread > size))
        if candidates.size == 0:
            break
        hubs[candidates[np.argmax(degree[candidates])]] = True
        arcs = arcs[~hubs[arcs].any(axis=1)]
    return hubs


def _spread_of_neighbours(arcs: Ints, size: int) -> tuple[Ints, Ints]:
    """How many neighbours each variable has, and how far the middle half of them spread."""
    ends, near = arcs[:, 0], arcs[:, 1]
    near = np.append(near[np.lexsort((near, ends))], 0)
    degree = np.bincount(ends, minlength=size)
    start = offsets(degree)[:-1]
    return degree, near[start + 3 * degree // 4] - near[start + degree // 4]


def _runs(sizes: Ints, links: _Links) -> list[tuple[int, int, int]]:
    """Runs (start, stop, period) of repeating variables, those that save most by folding first."""
    marks = _marks(sizes, links)
    runs: list[tuple[int, int, int]] = []
    for period in _periods(marks):
        same = np.concatenate([[False], marks[:-period] == marks[period:], [False]])
        edges = np.flatnonzero(same[1:] != same[:-1])
        if edges.size == 0:
            continue
        lengths = edges[1::2] - edges[::2]
        longest = int(np.argmax(lengths))
        start, stop = int(edges[2 * longest]), int(edges[2 * longest + 1]) + period
        if stop - start > budgets.FEWEST_BLOCKS * period and _alike(
            sizes, links, start, stop, period
        ):
            runs.append((start, stop, period))
    return sorted(runs, key=lambda run: budgets.FEWEST_BLOCKS * run[2] - (run[1] - run[0]))


def _periods(marks: Hashes, most: int = 8) -> list[int]:
    """Likely periods: the most common distances between successive equal marks."""
    order = np.argsort(marks, kind="stable")
    equal = marks[order][1:] == marks[order][:-1]
    distances = (order[1:] - order[:-1])[equal]
    values, counts = np.unique(distances, return_counts=True)
    return values[np.argsort(-counts, kind="stable")][:most].tolist()


def _marks(sizes: Ints, links: _Links) -> Hashes:
    """A hash for each variable of its tables and of the distances or hubs they lead to."""
    marks = sizes.astype(np.uint64)
    for side in range(links.scopes.shape[1]):
        own = links.scopes[:, side]
        key = (links.table * 8 + side).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        for other in range(links.scopes.shape[1]):
            target = links.scopes[:, other]
            reach = np.where(links.to_hub[:, other], links.size + target, target - own)
            reach = np.where(links.held[:, other], reach, -3 * links.size)
            key = (key ^ reach.astype(np.uint64)) * np.uint64(0xC2B2AE3D27D4EB4F)
            key ^= key >> np.uint64(31)
        held = links.held[:, side]
        np.add.at(marks, own[held], key[held])
    return marks


def _alike(sizes: Ints, links: _Links, start: int, stop: int, period: int) -> bool:
    """Whether the run really repeats (marks are only hashes) and blocks join only the next one."""
    if not np.array_equal(sizes[start : stop - period], sizes[start + period : stop]):
        return False
    plain = links.held & ~links.to_hub
    low = np.where(plain, links.scopes, links.size).min(axis=1)
    high = np.where(plain, links.scopes, NONE).max(axis=1)
    inside = links.touching(start, stop)
    if links.hubs[start:stop].any() or np.any((high - low)[inside] >= 2 * period):
        return False
    keys = np.column_stack([links.scopes, links.table])
    moved = np.column_stack([links.scopes + period * plain, links.table])
    head = links.touching(start, stop - period)
    tail = links.touching(start + period, stop)
    return np.array_equal(_sorted_rows(moved[head]), _sorted_rows(keys[tail]))


def _sorted_rows(rows: Ints) -> Ints:
    return rows[np.lexsort(rows.T[::-1])]


def _best_cut(sizes: Ints, links: _Links, start: int, period: int) -> tuple[int, Ints]:
    """Where blocks should start, and which variables of a block reach into the next one.

    There are none if blocks are not connected, or if some variable always reaches past the next
    one.
    """
    plain = np.where(links.to_hub, NONE, links.scopes)
    high = plain.max(axis=1)
    base = start + period
    reach = np.arange(base, base + period)
    for side in range(plain.shape[1]):
        own = (plain[:, side] >= base) & (plain[:, side] < base + period)
        np.maximum.at(reach, plain[own, side] - base, high[own])
    span = reach - np.arange(base, base + period)
    weight = np.log2(sizes[base : base + period].astype(np.float64))
    best: tuple[float, int, Ints] = (np.inf, 0, np.zeros(0, dtype=np.int64))
    for shift in range(period):
        offset = (np.arange(period) + shift) % period
        ends = span[offset] + np.arange(period)
        crosses = np.flatnonzero(ends >= period)
        load = float(weight[offset[crosses]].sum())
        if ends.max() < 2 * period and load < best[0]:
            best = (load, shift, crosses)
    return start + best[1], best[2]

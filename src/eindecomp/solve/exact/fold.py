"""Folds repeated layers exactly: 1,000 equal layers take little longer than one.

A long run of repeating variables is cut into blocks where the fewest joint choices cross. One
block is eliminated to a table over (joint choice at the cut before, at the cut after); its min-plus
power stands for all blocks. Every block remains free to choose differently. A hub, which all blocks
share, belongs to every cut, with one power for each of its choices.

Variables `i` and `i + period` repeat if they have the same tables, with neighbours at the same
distances and with the same hubs: the layers of a model may share a table of rotary angles.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from eindecomp.solve import budgets
from eindecomp.solve.exact.eliminate import Projection, project
from eindecomp.solve.problem.arrays import Floats, Ints, Mask, offsets
from eindecomp.solve.problem.cost_network import NONE, CostNetwork, Table, share_equal
from eindecomp.solve.run import Lift, Run


@dataclass(frozen=True, slots=True, eq=False)
class FoldedLayers:
    """A network with a run of equal blocks folded away, and how to unfold its choices.

    The folded network holds the variables before the run, the joint choices at the first and at the
    last cut, the cut variables of the last block, and the variables after the run. `matrices` holds
    the costs of one block between two cuts, for each joint choice of the hubs.
    """

    network: CostNetwork
    size: int
    repeats: Repeats
    block: Projection
    matrices: Floats

    def lift(self, choice: Ints) -> Ints:
        """The choice of all variables, given a choice of the folded network."""
        start, period, count = self.repeats.start, self.repeats.period, self.repeats.blocks
        cut, last = self.repeats.cut, start + count * period
        full = np.zeros(self.size, dtype=np.int64)
        full[:start] = choice[:start]
        full[last:] = choice[start + 2 + cut.size :]
        before, hub = divmod(int(choice[start]), len(self.matrices))
        states = self._path(hub, before, int(choice[start + 1]) // len(self.matrices))
        joint = np.unravel_index(states, self.block.table.shape[: cut.size])
        hub_at = cut.size + period
        known = {i: joint[i][:-1] for i in range(cut.size)}
        known |= {cut.size + int(c): joint[i][1:] for i, c in enumerate(cut)}
        known |= {hub_at + i: np.full(count, full[h]) for i, h in enumerate(self.repeats.hubs)}
        starts = start + period * np.arange(count)
        for variable, picked in (known | self.block.backtrack(known)).items():
            if cut.size <= variable < hub_at:
                full[starts + variable - cut.size] = picked
        return full

    def _path(self, hub: int, start: int, stop: int) -> Ints:
        """The joint choice at each cut, starting before the first block."""
        matrix, count = self.matrices[hub], self.repeats.blocks
        reach = np.full(matrix.shape[0], np.inf)
        reach[start] = 0.0
        came = np.zeros((count, reach.size), dtype=np.int32)
        for b in range(count):
            total = reach[:, None] + matrix
            came[b] = np.argmin(total, axis=0)
            reach = np.min(total, axis=0)
        path = np.zeros(count + 1, dtype=np.int64)
        path[-1] = stop
        for b in range(count - 1, -1, -1):
            path[b] = came[b, path[b + 1]]
        return path


def fold(network: CostNetwork, deadline: float, work: int = budgets.WORK) -> FoldedLayers | None:
    """Fold the longest run of equal blocks, if there is one and its cuts are narrow enough."""
    scopes = network.scopes()
    repeats = find_repeats(network, scopes)
    if repeats is None:
        return None
    # What precedes the first block need not look like a block, but must be able to serve as a cut:
    # as many variables, with as many choices.
    before = repeats.start - repeats.period + repeats.cut
    if before.min() < 0 or _sizes(network, before) != _sizes(network, repeats.start + repeats.cut):
        return None
    states = prod(_sizes(network, before))
    choices = prod(_sizes(network, repeats.hubs))
    power = choices * states**3 * 2 * repeats.blocks.bit_length()
    if states * choices > budgets.CUT_STATES or power > budgets.POWER_CELLS:
        return None
    block = _project_block(network, scopes, repeats, deadline, work)
    if block is None:
        return None
    matrices = np.moveaxis(block.table.reshape(states, states, choices), -1, 0).copy()
    powers = np.stack([min_plus_power(matrix, repeats.blocks) for matrix in matrices])
    small = _folded(network, scopes, repeats, powers)
    return FoldedLayers(small, len(network.sizes), repeats, block, matrices)


def fold_all(run: Run, work: int = budgets.WORK) -> tuple[CostNetwork, Lift]:
    """The network of a run's problem with every run of equal blocks folded; how to undo that.

    `work` limits the cells that are summed for one block.
    """
    problem = run.problem
    network = share_equal(CostNetwork.of_problem(problem))
    folds: list[FoldedLayers] = []

    def unfold(choice: Ints) -> Ints:
        for step in reversed(folds):
            choice = step.lift(choice)
        return choice

    # Folding adds up costs in float64: integers that it cannot hold exactly stay unfolded.
    if problem.integral and not problem.exact_in_floats:
        return network, unfold
    while (smaller := fold(network, run.deadline, work)) is not None:
        run.enter("fold")
        folds.append(smaller)
        network = smaller.network
    return network, unfold


def min_plus_power(matrix: Floats, exponent: int) -> Floats:
    """The min-plus product of `exponent` ≥ 1 copies of a square matrix, by squaring."""
    result: Floats | None = None
    while exponent:
        if exponent & 1:
            result = matrix if result is None else _min_plus(result, matrix)
        exponent >>= 1
        if exponent:
            matrix = _min_plus(matrix, matrix)
    return matrix if result is None else result


def _min_plus(left: Floats, right: Floats) -> Floats:
    out = np.full(left.shape, np.inf)
    for k in range(left.shape[1]):
        np.minimum(out, left[:, k, None] + right[k], out=out)
    return out


def _sizes(network: CostNetwork, variables: Ints) -> list[int]:
    return [network.sizes[v] for v in variables.tolist()]


def _project_block(
    network: CostNetwork, scopes: Ints, repeats: Repeats, deadline: float, work: int
) -> Projection | None:
    """Eliminate the first block except for the cut before it, its own cut, and the hubs."""
    start, period, cut = repeats.start, repeats.period, repeats.cut
    members = [*(start - period + cut), *range(start, start + period), *repeats.hubs]
    index = {int(v): i for i, v in enumerate(members)}
    own = ((scopes >= start) & (scopes < start + period)).any(axis=1)
    used = own & (np.isin(scopes, members) | (scopes == NONE)).all(axis=1)
    tables = _renumbered(network, used, index)
    last = range(cut.size + period, len(members))
    keep = (*range(cut.size), *(cut.size + cut).tolist(), *last)
    part = CostNetwork([network.sizes[v] for v in index], tables)
    return project(part, keep, deadline, work)


def _renumbered(network: CostNetwork, used: Mask, index: dict[int, int]) -> list[Table]:
    chosen = (network.tables[i] for i in np.flatnonzero(used).tolist())
    return [(tuple(index[v] for v in scope), table) for scope, table in chosen]


def _folded(network: CostNetwork, scopes: Ints, repeats: Repeats, powers: Floats) -> CostNetwork:
    """The network with two joint variables and the table `powers` in place of the blocks.

    A joint variable's choices number those at its cut and of the hubs together, hubs fastest.
    """
    start, period, cut = repeats.start, repeats.period, repeats.cut
    stop = start + repeats.blocks * period
    first, second, after = start, start + 1, start + 2 + cut.size
    index = {v: v for v in range(start)}
    index |= {int(stop - period + c): start + 2 + i for i, c in enumerate(cut)}
    index |= {v: after + v - stop for v in range(stop, len(network.sizes))}
    # The powers already include all tables within the blocks or leading into them.
    inside = np.any((scopes >= start) & (scopes < stop), axis=1)
    beyond = np.any((scopes >= stop) & ~np.isin(scopes, repeats.hubs), axis=1)
    tables = _renumbered(network, np.logical_or(~inside, beyond), index)
    kept = _sizes(network, stop - period + cut)
    hubs = [index[v] for v in repeats.hubs.tolist()]
    joint = powers.shape[0] * powers.shape[1]
    shape = (*kept, *_sizes(network, repeats.hubs))
    digits = np.indices(shape).reshape(len(shape), joint)
    before = [index[int(v)] for v in start - period + cut]
    ends = ((first, [*before, *hubs]), (second, [*range(start + 2, after), *hubs]))
    choices, states, _ = powers.shape
    table = np.full((states, choices, states, choices), np.inf)  # where hubs' choices differ
    for hub in range(choices):
        table[:, hub, :, hub] = powers[hub]
    tables.append(((first, second), table.reshape(joint, joint)))
    for j, variables in ends:
        for v, digit, size in zip(variables, digits, shape, strict=True):
            agrees = digit[:, None] == np.arange(size)
            tables.append(((j, v), np.where(agrees, 0.0, np.inf)))
    sizes = [*network.sizes[:start], joint, joint, *kept, *network.sizes[stop:]]
    return CostNetwork(sizes, tables)


Hashes = NDArray[np.uint64]


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
    known: dict[int, int] = {}
    numbers = [known.setdefault(id(table), len(known)) for _, table in network.tables]
    links = _Links(sizes.size, scopes, np.array(numbers, np.int64), _hubs(scopes, sizes.size))
    for start, stop, period in _runs(sizes, links):
        begin, cut = _best_cut(sizes, links, start, period)
        blocks = (stop - begin) // period
        if blocks >= budgets.FEWEST_BLOCKS and cut.size:
            used = np.unique(links.scopes[links.touching(begin, stop)])
            hubs = np.intersect1d(used, np.flatnonzero(links.hubs))
            return Repeats(begin, period, blocks, cut, hubs)
    return None


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
        ends, near = arcs[:, 0], arcs[:, 1]
        near = np.append(near[np.lexsort((near, ends))], 0)
        degree = np.bincount(ends, minlength=size)
        start = offsets(degree)[:-1]
        spread = near[start + 3 * degree // 4] - near[start + degree // 4]
        candidates = np.flatnonzero((degree >= budgets.FEWEST_BLOCKS) & (4 * spread > size))
        if candidates.size == 0:
            break
        hubs[candidates[np.argmax(degree[candidates])]] = True
        arcs = arcs[~hubs[arcs].any(axis=1)]
    return hubs


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
        is_long = stop - start > budgets.FEWEST_BLOCKS * period
        if is_long and _alike(sizes, links, start, stop, period):
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

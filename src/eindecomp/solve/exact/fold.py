"""Folds repeated layers exactly: 1,000 equal layers take little longer than one.

A long run of repeating variables is cut into blocks where the fewest joint choices cross. One
block is eliminated to a table over (joint choice at the cut before, at the cut after); its min-plus
power stands for all blocks. Every block remains free to choose differently. A hub, which all blocks
share, belongs to every cut, with one power for each of its choices.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from eindecomp.solve import budgets
from eindecomp.solve.exact.eliminate import Projection, project
from eindecomp.solve.exact.repeats import Repeats, find_repeats
from eindecomp.solve.problem.arrays import Floats, Ints
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


def _renumbered(
    network: CostNetwork, used: NDArray[np.bool_], index: dict[int, int]
) -> list[Table]:
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
    tables.append(((first, second), _block_diagonal(powers)))
    for j, variables in ends:
        for v, digit, size in zip(variables, digits, shape, strict=True):
            tables.append(((j, v), _agreement(digit, size)))
    sizes = [*network.sizes[:start], joint, joint, *kept, *network.sizes[stop:]]
    return CostNetwork(sizes, tables)


def _block_diagonal(powers: Floats) -> Floats:
    """One table over joint choices: ∞ where the hubs' choices differ."""
    choices, states, _ = powers.shape
    table = np.full((states, choices, states, choices), np.inf)
    for hub in range(choices):
        table[:, hub, :, hub] = powers[hub]
    return table.reshape(states * choices, states * choices)


def _agreement(choice: Ints, size: int) -> Floats:
    return np.where(choice[:, None] == np.arange(size), 0.0, np.inf)

"""Folds repeated blocks of a chain-like problem, exactly: 1,000 equal layers cost little over one.

Variables `i` and `i + period` are alike if they have the same costs and the same tables to
neighbours at the same distances. A long run of such variables is cut into blocks where the fewest
joint choices cross. One block is eliminated to a table over (joint choice at the cut before, at the
cut after); its min-plus power stands for all inner blocks; the first and the last block stay as
they are. Every block remains free to choose differently.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from eindecomp.solve.core import core_of
from eindecomp.solve.eliminate import Projection, project
from eindecomp.solve.problem import INFINITE, Costs, Floats, Ints, Problem, offsets

_STATES = 256  # the most joint choices at a cut
_FEWEST = 6  # blocks worth folding

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """A problem with `count` inner blocks folded away, and how to unfold its choices.

    The inner blocks are `first` to `first + count * period`. The folded problem holds the variables
    before them, the joint choices at the first and at the last cut, the cut variables of the last
    inner block, and the variables after it.
    """

    problem: Problem
    size: int
    first: int
    period: int
    count: int
    cut: Ints
    block: Projection
    matrix: Floats

    def lift(self, choice: Ints) -> Ints:
        """The choice of all variables, given that of the folded problem's."""
        first, last = self.first, self.first + self.count * self.period
        full = np.zeros(self.size, dtype=np.int64)
        full[:first] = choice[:first]
        full[last:] = choice[first + 2 + self.cut.size :]
        states = self._path(int(choice[first]), int(choice[first + 1]))
        joint = np.unravel_index(states, self.block.table.shape[: self.cut.size])
        known = {i: joint[i][:-1] for i in range(self.cut.size)}
        known |= {self.cut.size + int(c): joint[i][1:] for i, c in enumerate(self.cut)}
        starts = first + self.period * np.arange(self.count)
        for variable, picked in (known | self.block.backtrack(known)).items():
            if variable >= self.cut.size:
                full[starts + variable - self.cut.size] = picked
        return full

    def _path(self, start: int, stop: int) -> Ints:
        """The joint choice at each cut, from that before the first inner block on."""
        reach = np.full(self.matrix.shape[0], np.inf)
        reach[start] = 0.0
        came = np.zeros((self.count, reach.size), dtype=np.int32)
        for b in range(self.count):
            total = reach[:, None] + self.matrix
            came[b] = np.argmin(total, axis=0)
            reach = np.min(total, axis=0)
        path = np.zeros(self.count + 1, dtype=np.int64)
        path[-1] = stop
        for b in range(self.count - 1, -1, -1):
            path[b] = came[b, path[b + 1]]
        return path


def share_tables(problem: Problem) -> Problem:
    """The same problem with equal tables held once: what tells that layers repeat.

    >>> twice = Problem.of([[0, 1]] * 3, [(0, 1), (1, 2)], [[[0, 1], [1, 0]]] * 2)
    >>> share_tables(twice).table_of.tolist()
    [0, 0]
    """
    starts = problem.table_offset
    kept: dict[bytes, int] = {}
    owner = np.zeros(starts.size - 1, dtype=np.int64)
    for i in range(owner.size):
        owner[i] = kept.setdefault(problem.tables[starts[i] : starts[i + 1]].tobytes(), len(kept))
    if len(kept) == owner.size:
        return problem
    _, first = np.unique(owner, return_index=True)
    return replace(
        problem,
        table_of=owner[problem.table_of],
        table_offset=offsets(np.diff(starts)[first]),
        tables=np.concatenate([problem.tables[starts[i] : starts[i + 1]] for i in first]),
    )


def fold(problem: Problem, deadline: float) -> Fold | None:
    """Fold the longest run of equal blocks, if there is one; None also with a usage limit."""
    exact = problem.exact_in_floats or not problem.integral
    loops = problem.edges[:, 0] == problem.edges[:, 1]
    if problem.limited or problem.factors or not exact or loops.any():
        return None
    run = _longest_run(problem)
    if run is None:
        return None
    start, stop, period = run
    start, cut = _best_cut(problem, start, period)
    blocks = (stop - start) // period
    states = prod(problem.domains[start + cut].tolist())
    # Blocks that nothing joins fall apart by themselves.
    if cut.size == 0 or blocks < _FEWEST or states > _STATES:
        return None
    block = _project_block(problem, start + period, period, cut, deadline)
    if block is None:
        return None
    first, count = start + period, blocks - 2
    matrix = block.table.reshape(states, states)
    small = _folded(problem, first, period, count, cut, min_plus_power(matrix, count))
    return Fold(small, problem.size, first, period, count, cut, block, matrix)


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


def _longest_run(problem: Problem) -> tuple[int, int, int] | None:
    """The variables `start` to `stop` that repeat with a period, where most are inner blocks."""
    marks = _marks(problem)
    best: tuple[int, int, int] | None = None
    for period in _periods(marks):
        same = np.concatenate([[False], marks[:-period] == marks[period:], [False]])
        edges = np.flatnonzero(same[1:] != same[:-1])
        if edges.size == 0:
            continue
        lengths = edges[1::2] - edges[::2]
        longest = int(np.argmax(lengths))
        start, stop = int(edges[2 * longest]), int(edges[2 * longest + 1]) + period
        saved = stop - start - _FEWEST * period
        if saved > 0 and (best is None or saved > best[1] - best[0] - _FEWEST * best[2]):
            best = (start, stop, period)
    return best if best is None or _alike(problem, *best) else None


def _periods(marks: Hashes, most: int = 8) -> list[int]:
    """Likely periods: the commonest distances between nearest equal marks."""
    order = np.argsort(marks, kind="stable")
    equal = marks[order][1:] == marks[order][:-1]
    distances = (order[1:] - order[:-1])[equal]
    values, counts = np.unique(distances, return_counts=True)
    return values[np.argsort(-counts, kind="stable")][:most].tolist()


def _marks(problem: Problem) -> Hashes:
    """A hash per variable of its costs and of its tables and the distances they lead over."""
    rng = np.random.default_rng(0)
    weights = rng.integers(1, 2**63, size=int(problem.domains.max(initial=1)), dtype=np.uint64) | 1
    place = np.arange(problem.unary.size) - np.repeat(problem.offset[:-1], problem.domains)
    bits = problem.unary.view(np.uint64) * weights[place]
    marks = np.add.reduceat(bits ^ (bits >> np.uint64(29)), problem.offset[:-1])
    u, v = problem.edges[:, 0], problem.edges[:, 1]
    for source, distance, side in ((u, v - u, 1), (v, u - v, 2)):
        key = (problem.table_of * 4 + side).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        key ^= distance.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
        key = (key ^ (key >> np.uint64(31))) * np.uint64(0xD6E8FEB86659FD93)
        np.add.at(marks, source, key)
    return marks + problem.domains.astype(np.uint64)


def _alike(problem: Problem, start: int, stop: int, period: int) -> bool:
    """Whether the run really repeats (marks are hashes), and joins only neighbouring blocks."""
    a, b = problem.offset[start], problem.offset[stop]
    shift = problem.offset[start + period] - a
    same_sizes = np.array_equal(
        problem.domains[start : stop - period], problem.domains[start + period : stop]
    )
    if not same_sizes or not np.array_equal(
        problem.unary[a : b - shift], problem.unary[a + shift : b]
    ):
        return False
    inside = ((problem.edges >= start) & (problem.edges < stop)).any(axis=1)
    if np.any(np.abs(problem.edges[inside, 0] - problem.edges[inside, 1]) > period):
        return False
    keys = np.column_stack([problem.edges, problem.table_of])
    head = ((problem.edges >= start) & (problem.edges < stop - period)).any(axis=1)
    tail = ((problem.edges >= start + period) & (problem.edges < stop)).any(axis=1)
    moved = keys[head] + np.array([period, period, 0])
    return np.array_equal(_sorted_rows(moved), _sorted_rows(keys[tail]))


def _sorted_rows(rows: Ints) -> Ints:
    return rows[np.lexsort(rows.T[::-1])]


def _best_cut(problem: Problem, start: int, period: int) -> tuple[int, Ints]:
    """Where blocks should start, and which variables of a block reach into the next one."""
    low, high = problem.edges.min(axis=1), problem.edges.max(axis=1)
    base = start + period
    reach = np.arange(base, base + period)
    own = (low >= base) & (low < base + period)
    np.maximum.at(reach, low[own] - base, high[own])
    weight = np.log2(problem.domains[base : base + period].astype(np.float64))
    crossing = np.zeros(2 * period + 1)
    np.add.at(crossing, np.arange(1, period + 1), weight)
    np.subtract.at(crossing, reach - base + 1, weight)
    load = np.cumsum(crossing)[: 2 * period]
    shift = int(np.argmin(load[:period] + load[period:]))
    begin = start + shift
    offset = (np.arange(period) + shift) % period
    crosses = reach[offset] - base - offset + np.arange(period) >= period
    return begin, np.flatnonzero(crosses)


def _project_block(
    problem: Problem, start: int, period: int, cut: Ints, deadline: float
) -> Projection | None:
    """Eliminate the block at `start` but for its cut and the cut before it, which come first."""
    members = np.concatenate([start - period + cut, np.arange(start, start + period)])
    index = np.full(problem.size, -1)
    index[members] = np.arange(members.size)
    ends = index[problem.edges]
    used = (ends >= 0).all(axis=1) & (ends >= cut.size).any(axis=1)
    unary = [problem.unary[problem.offset[v] : problem.offset[v + 1]] for v in members.tolist()]
    for i in range(cut.size):
        unary[i] = np.zeros_like(unary[i])
    part = Problem(
        offset=offsets(problem.domains[members]),
        unary=np.concatenate(unary),
        edges=ends[used],
        table_of=problem.table_of[used],
        table_offset=problem.table_offset,
        tables=problem.tables,
    )
    keep = (*range(cut.size), *(cut.size + cut).tolist())
    return project(core_of(part), keep, deadline)


def _folded(
    problem: Problem, first: int, period: int, count: int, cut: Ints, power: Floats
) -> Problem:
    """The problem with `power` between two joint variables in place of the inner blocks."""
    last = first + count * period
    index = np.full(problem.size, -1)
    index[:first] = np.arange(first)
    index[last - period + cut] = first + 2 + np.arange(cut.size)
    index[last:] = first + 2 + cut.size + np.arange(problem.size - last)
    ends = index[problem.edges]
    inner = (problem.edges >= first) & (problem.edges < last)
    # What lies within the inner blocks, or leads into them, is in the power already.
    used = (
        (ends >= 0).all(axis=1)
        & ~inner.all(axis=1)
        & ~(inner.any(axis=1) & (problem.edges < first).any(axis=1))
    )
    kept_sizes = problem.domains[last - period + cut]
    sizes = np.concatenate(
        [problem.domains[:first], [power.shape[0]] * 2, kept_sizes, problem.domains[last:]]
    )
    kind = problem.unary.dtype
    blank = np.zeros(2 * power.shape[0] + int(kept_sizes.sum()), dtype=kind)
    shape = tuple(int(size) for size in kept_sizes)
    joints: list[Ints] = [np.asarray(a) for a in np.unravel_index(np.arange(len(power)), shape)]
    links = [(first, first - period + int(c)) for c in cut]
    links += [(first + 1, first + 2 + i) for i in range(cut.size)]
    tables = [_as_costs(power, kind)]
    tables += [
        _agreement(joints[i % cut.size], int(kept_sizes[i % cut.size]), kind)
        for i in range(2 * cut.size)
    ]
    held = problem.table_offset.size - 1
    return Problem(
        offset=offsets(sizes.astype(np.int64)),
        unary=np.concatenate(
            [problem.unary[: problem.offset[first]], blank, problem.unary[problem.offset[last] :]]
        ),
        edges=np.concatenate([ends[used], [[first, first + 1]], np.array(links).reshape(-1, 2)]),
        table_of=np.concatenate([problem.table_of[used], held + np.arange(len(tables))]),
        table_offset=np.concatenate(
            [
                problem.table_offset[:-1],
                problem.tables.size + offsets(np.array([t.size for t in tables])),
            ]
        ),
        tables=np.concatenate([problem.tables, *[t.ravel() for t in tables]]),
    )


def _as_costs(table: Floats, kind: np.dtype) -> Costs:
    if kind.kind == "f":
        return table
    finite = np.isfinite(table)
    return np.where(finite, np.where(finite, table, 0).astype(np.int64), INFINITE)


def _agreement(choice: Ints, size: int, kind: np.dtype) -> Costs:
    infinite = INFINITE if kind.kind == "i" else np.inf
    table = np.full((choice.size, size), infinite, dtype=kind)
    table[np.arange(choice.size), choice] = 0
    return table

"""The core of a problem: pairwise, in float64, with usages as items over time steps.

Reductions make a core smaller, and the search works on what is left. A variable of a core may
stand for many variables of the problem, so it owns any number of *items*: a usage per choice during
the time steps `[start, end)`. Steps that cannot bind are dropped, and each of the others has a
capacity of its own. Factors over three or more variables are replaced first (`pairwise`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eindecomp.errors import UnsolvedError
from eindecomp.solve import budgets
from eindecomp.solve.problem.arrays import INFINITE, Costs, Floats, Ints, offsets
from eindecomp.solve.problem.problem import Problem


@dataclass(frozen=True, slots=True, eq=False)
class Core:
    """Packed arrays: see the module's docstring and `Problem`'s."""

    offset: Ints
    unary: Floats
    edges: Ints
    table_offset: Ints
    tables: Floats
    item_var: Ints
    item_span: Ints
    item_offset: Ints
    item_usage: Floats
    capacity: Floats
    step: Ints
    constant: float = 0.0

    @property
    def size(self) -> int:
        """How many variables there are."""
        return self.offset.size - 1

    @property
    def domains(self) -> Ints:
        """How many choices each variable has."""
        return np.diff(self.offset)

    def cost_of(self, choice: Ints) -> float:
        """The cost of one choice per variable."""
        u, v = self.edges[:, 0], self.edges[:, 1]
        cells = self.tables[self.table_offset[:-1] + choice[u] * self.domains[v] + choice[v]]
        return float(self.constant + self.unary[self.offset[:-1] + choice].sum() + cells.sum())

    def slack_of(self, choice: Ints) -> Floats:
        """Capacity less usage at each step."""
        used = self.item_usage[self.item_offset[:-1] + choice[self.item_var]]
        return self.capacity - over_steps(used, self.item_span, self.capacity.size)


def over_steps(used: Floats, span: Ints, steps: int) -> Floats:
    """The sum of item usages at each step."""
    change = np.zeros(steps + 1)
    np.add.at(change, span[:, 0], used)
    np.subtract.at(change, span[:, 1], used)
    return np.cumsum(change)[:-1]


def core_of(problem: Problem) -> Core:
    """The core of a problem without factors."""
    n = problem.size
    sizes = problem.domains
    lives = np.zeros(n, dtype=bool)
    span = np.zeros((n, 2), dtype=np.int64)
    if problem.limit is not None and problem.usage is not None and problem.intervals is not None:
        span = problem.intervals
        lives = (span[:, 1] > span[:, 0]) & (
            np.maximum.reduceat(problem.usage, problem.offset[:-1]) > 0
        )
    owners = np.flatnonzero(lives)
    steps = int(span[owners].max(initial=0))
    cells = np.diff(problem.table_offset)[problem.table_of]
    return Core(
        offset=problem.offset,
        unary=problem.floats(problem.unary),
        edges=problem.edges,
        table_offset=offsets(cells),
        tables=problem.floats(_unshared(problem, cells)),
        item_var=owners,
        item_span=span[owners],
        item_offset=offsets(sizes[owners]),
        item_usage=_take_parts(problem, owners),
        capacity=np.full(steps, float(problem.limit or 0) + problem.tolerance / 2),
        step=np.arange(steps),
    )


def _unshared(problem: Problem, cells: Ints) -> Costs:
    """The tables, one per edge."""
    if np.array_equal(problem.table_of, np.arange(problem.table_offset.size - 1)):
        return problem.tables
    within = np.arange(int(cells.sum())) - np.repeat(offsets(cells)[:-1], cells)
    return problem.tables[np.repeat(problem.table_offset[problem.table_of], cells) + within]


def _take_parts(problem: Problem, owners: Ints) -> Floats:
    if problem.usage is None or owners.size == 0:
        return np.zeros(0)
    mask = np.zeros(problem.size, dtype=bool)
    mask[owners] = True
    return problem.usage[np.repeat(mask, problem.domains)].astype(np.float64)


def pairwise(problem: Problem) -> tuple[Problem, int]:
    """An equivalent problem without factors, and how many variables it had before.

    New variables come after the old ones.
    """
    if not problem.factors:
        return problem, problem.size
    infinite = INFINITE if problem.integral else np.inf
    sizes, unary = [problem.domains], [problem.unary]
    edges, tables = [problem.edges], [problem.tables]
    for number, factor in enumerate(problem.factors):
        cells = np.flatnonzero(factor.table.ravel() != infinite)
        if cells.size > budgets.SEARCHED_CELLS:
            raise UnsolvedError(
                f"the table over {factor.scope} has {cells.size} finite costs: too many to search"
            )
        if cells.size == 0:
            cells = np.zeros(1, dtype=np.int64)
        sizes.append(np.array([cells.size]))
        unary.append(factor.table.ravel()[cells])
        place = np.unravel_index(cells, factor.table.shape)
        for axis, variable in enumerate(factor.scope):
            edges.append(np.array([[problem.size + number, variable]]))
            tables.append(
                _agreement(place[axis], factor.table.shape[axis], infinite, unary[0].dtype)
            )
    domains: Ints = np.concatenate(sizes)
    pairs = np.concatenate(edges)
    extra = int(domains[problem.size :].sum())
    count = len(problem.factors)
    added = np.array([t.size for t in tables[1:]], dtype=np.int64)
    held = problem.table_offset.size - 1
    return Problem(
        offset=offsets(domains),
        unary=np.concatenate(unary),
        edges=pairs,
        table_of=np.concatenate(
            [problem.table_of, np.arange(held, held + len(pairs) - len(problem.edges))]
        ),
        table_offset=np.concatenate(
            [problem.table_offset[:-1], problem.tables.size + offsets(added)]
        ),
        tables=np.concatenate(tables),
        usage=None
        if problem.usage is None
        else np.concatenate([problem.usage, np.zeros(extra, problem.usage.dtype)]),
        intervals=None
        if problem.intervals is None
        else np.concatenate([problem.intervals, np.zeros((count, 2), np.int64)]),
        limit=problem.limit,
    ), problem.size


def _agreement(choice: Ints, size: int, infinite: float, kind: np.dtype) -> Costs:
    table = np.full((choice.size, size), infinite, dtype=kind)
    table[np.arange(choice.size), choice] = 0
    return table.ravel()

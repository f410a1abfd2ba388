"""Minimum-cost choice problems: what `minimize` is given.

Each of `n` variables takes one of finitely many choices. A choice has a unary cost, pairs of
variables have cost tables, and so may a few larger groups. A choice may also use a resource while
the variable is alive, `[start, end)`, and at no time step may the total usage exceed the limit.

Everything is packed. Variable `i` owns `unary[offset[i]:offset[i + 1]]`. Edge `e` between `u` and
`v` has the table `tables[table_offset[i]:table_offset[i + 1]]` with `i = table_of[e]`, row-major
over (choice of u, choice of v); edges may share a table. Costs are int64 when every cost given is
an integer, with `INFINITE` for ∞, and float64 with `inf` otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import floor

import numpy as np
from numpy.typing import ArrayLike

from eindecomp.errors import ProblemError
from eindecomp.solve import budgets
from eindecomp.solve.problem import checks
from eindecomp.solve.problem.arrays import (
    EXACT,
    INFINITE,
    Costs,
    Factor,
    Floats,
    Ints,
    largest_of_each,
    offsets,
)

_ROUNDING = 1e-9  # of usages that are floats, relative to their sum


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """A minimum-cost choice problem over packed arrays; `Problem.of` packs them.

    Args:
        offset: Where the choices of each variable begin, and the end, such as `[0, 2, 4]`.
        unary: The cost of each choice, such as `[0, 3, 1, 0]`.
        edges: Pairs of variables that have a table, such as `[[0, 1]]`.
        table_of: Which table each edge has, such as `[0]`; edges may share one.
        table_offset: Where each table begins, and the end, such as `[0, 4]`.
        tables: Their costs, row-major over both choices, such as `[5, 9, 0, 0]`.
        factors: Tables over more variables, such as `(Factor((0, 1, 2), table),)`.
        usage: What each choice uses while its variable is alive, such as `[1, 2, 1, 0]`.
        intervals: The steps of each variable's life, such as `[[0, 2], [1, 3]]`.
        limit: The most usage at any step, such as `2`.

    Raises:
        ProblemError: The arrays do not fit each other.

    Examples:
        >>> toy = Problem.of([[0, 3], [1, 0]], [(0, 1)], [[[5, 9], [0, 0]]])
        >>> toy
        <Problem of 2 variables with 4 choices, 1 edges>
        >>> toy.cost_of([1, 1])
        3
    """

    offset: Ints
    unary: Costs
    edges: Ints
    table_of: Ints
    table_offset: Ints
    tables: Costs
    factors: tuple[Factor, ...] = ()
    usage: Costs | None = None
    intervals: Ints | None = None
    limit: float | int | None = None

    def __post_init__(self) -> None:
        # In this order: each check relies on those before it.
        checks.check_arrays({name: getattr(self, name) for name in checks.ARRAYS})
        checks.check_variables(self.offset, self.unary)
        checks.check_edges(self.edges, self.domains)
        checks.check_tables(self.edges, self.domains, self.table_of, self.table_offset, self.tables)
        checks.check_factors(self.factors, self.domains)
        checks.check_costs(self.unary, self.tables, self.factors)
        if self.integral:
            checks.check_magnitude(self.magnitude)
        checks.check_usage(self.usage, self.intervals, self.limit, self.domains)

    @staticmethod
    def of(
        unary: Sequence[ArrayLike],
        edges: ArrayLike = (),
        tables: Sequence[ArrayLike] = (),
        factors: Sequence[tuple[Sequence[int], ArrayLike]] = (),
        *,
        table_of: ArrayLike | None = None,
        usage: Sequence[ArrayLike] | None = None,
        intervals: ArrayLike | None = None,
        limit: float | int | None = None,
    ) -> Problem:
        """Pack one array per variable, edge and factor.

        Args:
            unary: The costs of each variable's choices, such as `[[0, 3], [1, 0]]`.
            edges: Pairs of variables that have a table, such as `[(0, 1)]`.
            tables: A table for each edge, such as `[[[5, 9], [0, 0]]]`.
            factors: Variables and their table, such as `[((0, 1, 2), table)]`.
            table_of: Which table each edge has, such as `[0, 0]`, where edges share one.
            usage: What each choice uses while its variable is alive, such as `[[1, 2], [1, 0]]`.
            intervals: The steps of each variable's life, such as `[[0, 2], [1, 3]]`.
            limit: The most usage at any step, such as `2`.

        Raises:
            ProblemError: Any of them is wrong.
        """
        rows, grids = checks.to_arrays(unary, "unary"), checks.to_arrays(tables, "tables")
        if bad := [i for i, row in enumerate(rows) if row.ndim != 1]:
            raise ProblemError(f"unary costs of variable {bad[0]} must be one-dimensional")
        sizes = np.array([row.size for row in rows], dtype=np.int64)
        pairs = checks.to_integers(edges, "edges", pairs=True)
        shared = checks.to_integers(range(len(grids)) if table_of is None else table_of, "table_of")
        checks.check_edges(pairs, sizes)
        checks.check_grids(pairs, sizes, shared, grids)
        larger = checks.to_factors(factors)
        integral = checks.all_integers([*rows, *grids, *(factor.table for factor in larger)])
        span = None if intervals is None else checks.to_integers(intervals, "intervals", pairs=True)
        return Problem(
            offset=offsets(sizes),
            unary=checks.concatenate(rows, integral),
            edges=pairs,
            table_of=shared,
            table_offset=offsets(np.array([grid.size for grid in grids], dtype=np.int64)),
            tables=checks.concatenate(grids, integral),
            factors=checks.with_type(larger, integral),
            usage=None if usage is None else checks.pack_usage(usage, sizes),
            intervals=span,
            limit=limit,
        )

    def __repr__(self) -> str:
        told = f"{self.size} variables with {self.unary.size} choices, {len(self.edges)} edges"
        factors = f", {len(self.factors)} factors" if self.factors else ""
        limit = f", usage limit {self.limit}" if self.limited else ""
        return f"<Problem of {told}{factors}{limit}>"

    @property
    def size(self) -> int:
        """How many variables there are."""
        return self.offset.size - 1

    @property
    def domains(self) -> Ints:
        """How many choices each variable has."""
        return np.diff(self.offset)

    @property
    def integral(self) -> bool:
        """Whether all costs are integers; then so are all bounds."""
        return self.unary.dtype.kind == "i"

    @property
    def limited(self) -> bool:
        """Whether there is a usage limit."""
        return self.limit is not None

    @cached_property
    def magnitude(self) -> float:
        """An upper bound on the absolute value of any choice's finite cost."""
        uses = np.bincount(self.table_of, minlength=self.table_offset.size - 1)
        parts = [
            float(np.sum(largest_of_each(self.unary, self.offset))),
            float(np.sum(uses * largest_of_each(self.tables, self.table_offset))),
        ]
        largest = {
            id(table): float(largest_of_each(table.ravel(), np.array([0, 1]))[0])
            for table in {id(f.table): f.table for f in self.factors}.values()
        }
        parts += [largest[id(factor.table)] for factor in self.factors]
        return sum(parts)

    @property
    def nonnegative(self) -> bool:
        """Whether no cost is below 0."""
        tables = [self.unary, self.tables, *(factor.table for factor in self.factors)]
        return all(table.min(initial=0) >= 0 for table in tables)

    @property
    def exact_in_floats(self) -> bool:
        """Whether sums of these costs are exact in float64."""
        return self.integral and self.magnitude < EXACT

    def floats(self, costs: Costs) -> Floats:
        """Costs as float64, ∞ as `inf`.

        Args:
            costs: Those of this problem, such as `problem.unary`.
        """
        if costs.dtype.kind == "f":
            return costs
        return np.where(costs == INFINITE, np.inf, costs.astype(np.float64))

    @property
    def least(self) -> int | float:
        """A simple lower bound: each variable by itself pays what is least of its tables.

        A table belongs to the variable with the most choices among those that it is over.
        """
        least = self.floats(self.unary).copy()
        domains: list[int] = self.domains.tolist()
        known: dict[tuple[int, int], Costs] = {}

        def add(scope: Sequence[int], table: Costs, number: int) -> None:
            axis = max(range(len(scope)), key=lambda k: domains[scope[k]])
            if (number, axis) not in known:
                others = tuple(k for k in range(table.ndim) if k != axis)
                known[number, axis] = self.floats(table.min(axis=others))
            start, stop = self.offset[scope[axis]], self.offset[scope[axis] + 1]
            least[start:stop] += known[number, axis]

        edges: list[tuple[int, int]] = self.edges.tolist()
        for edge, number in zip(edges, self.table_of.tolist(), strict=True):
            start, stop = self.table_offset[number], self.table_offset[number + 1]
            add(edge, self.tables[start:stop].reshape([domains[v] for v in edge]), number)
        for factor in self.factors:
            add(factor.scope, factor.table, -id(factor.table))
        each = np.minimum.reduceat(least, self.offset[:-1]) if least.size else least
        if np.isinf(each).any():
            return -np.inf  # nothing is feasible, which is for the solver to report
        rounding = 0.0 if self.exact_in_floats else budgets.ROUNDING * self.magnitude
        total = float(each.sum()) - rounding
        return floor(total) if self.integral else total

    @property
    def tolerance(self) -> float | int:
        """By how much total usage may exceed the limit: 0 for integers, rounding for floats."""
        if self.usage is None or self.limit is None or self.usage.dtype.kind == "i":
            return 0
        return _ROUNDING * (self.limit + float(largest_of_each(self.usage, self.offset).sum()))

    def cost_of(self, choice: ArrayLike) -> int | float:
        """The cost of a choice, exact for integer costs; ignores the usage limit.

        Args:
            choice: A choice for each variable, such as `[1, 0]`.
        """
        picked = self.check_choice(choice)
        first, second = self.edges[:, 0], self.edges[:, 1]
        place = picked[first] * self.domains[second] + picked[second]
        paired = self.tables[self.table_offset[self.table_of] + place]
        larger = [f.table[tuple(picked[list(f.scope)])] for f in self.factors]
        parts = [self.unary[self.offset[:-1] + picked], paired, np.array(larger, self.unary.dtype)]
        if not self.integral:
            return float(sum(float(np.sum(part)) for part in parts))
        if any(np.any(part == INFINITE) for part in parts):
            return float("inf")
        return sum(int(np.sum(part)) for part in parts)

    def usage_of(self, choice: ArrayLike) -> Costs:
        """The total usage at each time step.

        Args:
            choice: A choice for each variable, such as `[1, 0]`.
        """
        picked = self.check_choice(choice)
        if self.usage is None or self.intervals is None:
            return np.zeros(0, dtype=np.int64)
        used = self.usage[self.offset[:-1] + picked]
        change = np.zeros(int(self.intervals.max(initial=0)) + 1, dtype=used.dtype)
        lives = self.intervals[:, 1] > self.intervals[:, 0]
        np.add.at(change, self.intervals[lives, 0], used[lives])
        np.subtract.at(change, self.intervals[lives, 1], used[lives])
        return np.cumsum(change)[:-1]

    def feasible(self, choice: ArrayLike) -> bool:
        """Whether the choice costs less than ∞ and stays within the usage limit.

        Args:
            choice: A choice for each variable, such as `[1, 0]`.
        """
        if np.isinf(self.cost_of(choice)):
            return False
        if self.limit is None:
            return True
        return bool(self.usage_of(choice).max(initial=0) <= self.limit + self.tolerance)

    def check_choice(self, choice: ArrayLike) -> Ints:
        """The choice as an int64 array, or a `ProblemError` if it is not one of this problem's.

        Args:
            choice: A choice for each variable, such as `[1, 0]`.
        """
        try:
            picked = np.asarray(choice)
        except ValueError:
            raise ProblemError(f"a choice is {self.size} integers, not nested lists") from None
        if picked.size == 0 and self.size == 0:
            return np.zeros(0, dtype=np.int64)
        if picked.shape != (self.size,) or picked.dtype.kind not in "iu":
            raise ProblemError(
                f"a choice is {self.size} integers, not {picked.dtype}{picked.shape}"
            )
        if bad := np.flatnonzero((picked < 0) | (picked >= self.domains)).tolist():
            raise ProblemError(f"variable {bad[0]} has no choice {picked[bad[0]]}")
        return picked.astype(np.int64)

"""Minimum-cost choice problems: what `solve` is given and what it gives back.

Each of `n` variables takes one of finitely many choices. A choice has a unary cost, pairs of
variables have cost tables, a few larger groups may too. A choice may also use a resource while the
variable is alive, `[start, end)`, and at no time step may the total usage exceed the limit.

Everything is packed. Variable `i` owns `unary[offset[i]:offset[i + 1]]`. Edge `e` between `u` and
`v` has the table `tables[table_offset[i]:table_offset[i + 1]]` with `i = table_of[e]`, row-major
over (choice of u, choice of v); edges may share a table. Costs are int64 when every cost given is
an integer, with `INFINITE` for ∞, and float64 with `inf` otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eindecomp.errors import ProblemError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Costs = NDArray[Any]

INFINITE = np.iinfo(np.int64).max
_MAX_MAGNITUDE = 2**62  # the sum of one cost per table must fit an int64
_COST_TYPES = ("int64", "float64")
_ROUNDING = 1e-9  # of usages that are floats, relative to all of them
_LAST_STEP = 100_000_000  # time steps are counted one by one
_EXACT = 2**53  # integers up to here are exact as float64


@dataclass(frozen=True, slots=True)
class Factor:
    """A cost table over three or more variables; axis `a` is the choice of `scope[a]`."""

    scope: tuple[int, ...]
    table: Costs


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A minimum-cost choice problem over packed arrays; see the module's docstring.

    >>> toy = Problem.of([[0, 3], [1, 0]], [(0, 1)], [[[5, 9], [0, 0]]])
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
        _check_shapes(self)
        _check_costs(self)
        _check_usage(self)

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
        """Pack one array per variable, edge and factor; raises `ProblemError` on what is wrong."""
        try:
            return _packed(unary, edges, tables, factors, table_of, usage, intervals, limit)
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, ProblemError):
                raise
            raise ProblemError(f"not the arrays of a problem: {error}") from None

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
        """Whether all costs are integers, and so every cost and bound."""
        return self.unary.dtype.kind == "i"

    @property
    def limited(self) -> bool:
        """Whether there is a usage limit."""
        return self.limit is not None

    @property
    def magnitude(self) -> float:
        """An upper bound on the absolute value of any choice's finite cost."""
        uses = np.bincount(self.table_of, minlength=self.table_offset.size - 1)
        parts = [
            float(np.sum(_largest(self.unary, self.offset))),
            float(np.sum(uses * _largest(self.tables, self.table_offset))),
        ]
        parts += [float(_largest(f.table.ravel(), np.array([0, 1]))[0]) for f in self.factors]
        return sum(parts)

    @property
    def exact_in_floats(self) -> bool:
        """Whether sums of these costs are exact in float64."""
        return self.integral and self.magnitude < _EXACT

    def floats(self, costs: Costs) -> Floats:
        """Costs as float64, ∞ as `inf`."""
        if costs.dtype.kind == "f":
            return costs
        return np.where(costs == INFINITE, np.inf, costs.astype(np.float64))

    @property
    def least(self) -> int | float:
        """What no choice can cost less than at first sight, without the larger factors."""
        uses = np.bincount(self.table_of, minlength=self.table_offset.size - 1)
        parts = [(self.unary, self.offset, 1), (self.tables, self.table_offset, uses)]
        total = 0
        for costs, starts, times in parts:
            least = np.minimum.reduceat(costs, starts[:-1]) if costs.size else costs
            if np.any(least == INFINITE) or np.any(np.isinf(least)):
                return -np.inf  # nothing is feasible; that is for others to find and say
            total = total + (least * times).sum()
        return int(total) if self.integral else float(total)

    @property
    def tolerance(self) -> float | int:
        """By how much a total of usages may pass the limit: 0 for integers, rounding for floats."""
        if self.usage is None or self.limit is None or self.usage.dtype.kind == "i":
            return 0
        return _ROUNDING * (self.limit + float(_largest(self.usage, self.offset).sum()))

    def cost_of(self, choice: ArrayLike) -> int | float:
        """The cost of a choice, exact for integer costs; the limit is not looked at."""
        picked = self.check_choice(choice)
        first, second = self.edges[:, 0], self.edges[:, 1]
        place = picked[first] * self.domains[second] + picked[second]
        parts = [
            self.unary[self.offset[:-1] + picked],
            self.tables[self.table_offset[self.table_of] + place],
            np.array(
                [f.table[tuple(picked[list(f.scope)])] for f in self.factors], self.unary.dtype
            ),
        ]
        if not self.integral:
            return float(sum(float(np.sum(part)) for part in parts))
        if any(np.any(part == INFINITE) for part in parts):
            return float("inf")
        return sum(int(np.sum(part)) for part in parts)

    def usage_of(self, choice: ArrayLike) -> Costs:
        """The total usage at each time step."""
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
        """Whether the choice costs less than ∞ and keeps within the usage limit."""
        if np.isinf(self.cost_of(choice)):
            return False
        if self.limit is None:
            return True
        return bool(self.usage_of(choice).max(initial=0) <= self.limit + self.tolerance)

    def check_choice(self, choice: ArrayLike) -> Ints:
        """The choice as an int64 array, or a `ProblemError` if it is not one of this problem's."""
        picked = np.asarray(choice)
        if picked.size == 0 and self.size == 0:
            return np.zeros(0, dtype=np.int64)
        if picked.shape != (self.size,) or picked.dtype.kind not in "iu":
            raise ProblemError(
                f"a choice is {self.size} integers, not {picked.dtype}{picked.shape}"
            )
        if bad := np.flatnonzero((picked < 0) | (picked >= self.domains)).tolist():
            raise ProblemError(f"variable {bad[0]} has no choice {picked[bad[0]]}")
        return picked.astype(np.int64)


def _packed(
    unary: Sequence[ArrayLike],
    edges: ArrayLike,
    tables: Sequence[ArrayLike],
    factors: Sequence[tuple[Sequence[int], ArrayLike]],
    table_of: ArrayLike | None,
    usage: Sequence[ArrayLike] | None,
    intervals: ArrayLike | None,
    limit: float | int | None,
) -> Problem:
    rows = [np.asarray(row) for row in unary]
    if bad := [i for i, row in enumerate(rows) if row.ndim != 1]:
        raise ProblemError(f"unary costs of variable {bad[0]} must be one-dimensional")
    sizes = np.array([row.size for row in rows], dtype=np.int64)
    pairs = _whole(edges, "edges").reshape(-1, 2)
    grids = [np.asarray(table) for table in tables]
    shared = np.arange(len(grids)) if table_of is None else _whole(table_of, "table_of")
    _check_grids(sizes, pairs, shared, grids)
    larger = [(tuple(int(i) for i in scope), np.asarray(table)) for scope, table in factors]
    integral = all(a.dtype.kind in "iu" for a in (*rows, *grids, *(t for _, t in larger)) if a.size)
    return Problem(
        offset=offsets(sizes),
        unary=_join(rows, integral),
        edges=pairs,
        table_of=shared,
        table_offset=offsets(np.array([grid.size for grid in grids], dtype=np.int64)),
        tables=_join(grids, integral),
        factors=tuple(Factor(scope, _typed(table, integral)) for scope, table in larger),
        usage=None if usage is None else _join_usage(usage),
        intervals=None if intervals is None else _pairs_of(intervals),
        limit=limit,
    )


def offsets(sizes: Ints) -> Ints:
    """Where each part of a packed array starts, and where the last one ends."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)])


def _whole(given: ArrayLike, what: str) -> Ints:
    array = np.asarray(given)
    if array.size and array.dtype.kind not in "iu":
        raise ProblemError(f"{what} must be integers, not {array.dtype}")
    return array.astype(np.int64)


def _pairs_of(intervals: ArrayLike) -> Ints:
    pairs = np.asarray(intervals)
    return (pairs if pairs.size else pairs.astype(np.int64)).reshape(-1, 2)


def _typed(array: Costs, integral: bool) -> Costs:
    if array.dtype.kind not in "iufb" and array.size:
        raise ProblemError(f"costs must be numbers, not {array.dtype}")
    if array.dtype.kind == "u" and array.size and array.max() > INFINITE:
        raise ProblemError(f"cost {array.max()} does not fit 64 bits with a sign")
    if array.dtype.kind == "i" and not integral:
        return np.where(array == INFINITE, np.inf, array.astype(np.float64))
    return array.astype(np.int64 if integral else np.float64)


def _join(arrays: list[Costs], integral: bool) -> Costs:
    kind = np.int64 if integral else np.float64
    if not arrays:
        return np.zeros(0, dtype=kind)
    return np.concatenate([_typed(a.ravel(), integral) for a in arrays])


def _join_usage(usage: Sequence[ArrayLike]) -> Costs:
    flat = np.concatenate([np.asarray(row).ravel() for row in usage]) if len(usage) else np.zeros(0)
    return flat.astype(np.int64 if flat.dtype.kind in "iu" else np.float64)


def _largest(costs: Costs, offset: Ints) -> Floats:
    """The largest finite absolute cost of each part."""
    if costs.size == 0:
        return np.zeros(offset.size - 1)
    finite = costs < INFINITE if costs.dtype.kind == "i" else np.isfinite(costs)
    sizes = np.abs(np.where(finite, costs, 0)).astype(np.float64)
    return np.maximum.reduceat(sizes, offset[:-1])


def _check_grids(sizes: Ints, pairs: Ints, shared: Ints, grids: list[Costs]) -> None:
    """Shapes are lost once packed, so they are checked before; the rest is checked at birth."""
    _check_ends(pairs, sizes.size)
    _check_sharing(shared, len(pairs), len(grids))
    shapes = np.array([g.shape if g.ndim == 2 else (-1, -1) for g in grids], dtype=np.int64)
    wrong = (shapes.reshape(-1, 2)[shared] != sizes[pairs]).any(axis=1)
    if bad := np.flatnonzero(wrong).tolist():
        (u, v), table = pairs[bad[0]].tolist(), grids[int(shared[bad[0]])]
        raise ProblemError(
            f"table of edge {bad[0]} ({u}, {v}) has shape {table.shape}, not {(sizes[u], sizes[v])}"
        )


def _check_sharing(shared: Ints, edges: int, tables: int) -> None:
    if shared.shape != (edges,):
        raise ProblemError(f"{edges} edges but {shared.size} tables")
    if np.any((shared < 0) | (shared >= tables)):
        raise ProblemError(f"table_of must name one of {tables} tables per edge")


def _check_ends(pairs: Ints, size: int) -> None:
    if bad := np.flatnonzero(((pairs < 0) | (pairs >= size)).any(axis=1)).tolist():
        raise ProblemError(f"edge {bad[0]} joins {pairs[bad[0]].tolist()}, of {size} variables")


def _check_shapes(problem: Problem) -> None:
    offset, domains = problem.offset, problem.domains
    if offset.ndim != 1 or offset.size == 0 or offset[0] != 0 or offset[-1] != problem.unary.size:
        raise ProblemError("offset must start at 0 and end at the number of unary costs")
    if bad := np.flatnonzero(domains <= 0).tolist():
        raise ProblemError(f"variable {bad[0]} has no choices")
    if problem.edges.ndim != 2 or problem.edges.shape[1] != 2:
        raise ProblemError(f"edges must be pairs of variables, not {problem.edges.shape}")
    _check_ends(problem.edges, problem.size)
    cells = domains[problem.edges[:, 0]] * domains[problem.edges[:, 1]]
    if problem.table_offset.size == 0 or problem.table_offset[-1] != problem.tables.size:
        raise ProblemError("table_offset does not fit the tables")
    _check_sharing(problem.table_of, cells.size, problem.table_offset.size - 1)
    held = np.diff(problem.table_offset)
    if bad := np.flatnonzero(held[problem.table_of] != cells).tolist():
        u, v = problem.edges[bad[0]].tolist()
        raise ProblemError(
            f"table of edge {bad[0]} ({u}, {v}) has {held[problem.table_of[bad[0]]]} costs, "
            f"not {domains[u]} × {domains[v]}"
        )
    if np.any(held <= 0):
        raise ProblemError(f"table {int(np.argmin(held))} is empty")
    for factor in problem.factors:
        if any(i < 0 or i >= problem.size for i in factor.scope):
            raise ProblemError(f"factor over {factor.scope} of {problem.size} variables")
        if factor.table.shape != tuple(domains[list(factor.scope)]):
            raise ProblemError(f"factor over {factor.scope} has shape {factor.table.shape}")


def _check_costs(problem: Problem) -> None:
    named = [("unary", problem.unary), ("tables", problem.tables)]
    named += [(f"factor {f.scope}", f.table.ravel()) for f in problem.factors]
    for name, costs in named:
        if costs.dtype != problem.unary.dtype or costs.dtype.name not in _COST_TYPES:
            raise ProblemError(f"{name} costs are {costs.dtype}; all must be int64 or all float64")
        if costs.dtype.kind == "f" and (np.isnan(costs).any() or np.isneginf(costs).any()):
            raise ProblemError(f"{name} costs contain NaN or -∞")
        if costs.dtype.kind == "i" and (costs == np.iinfo(np.int64).min).any():
            raise ProblemError(
                f"{name} costs contain the least 64-bit integer, which has no opposite"
            )
    if problem.integral and problem.magnitude >= _MAX_MAGNITUDE:
        raise ProblemError(
            "integer costs add up to more than 2**62; write ∞ as INFINITE or use floats"
        )


def _check_usage(problem: Problem) -> None:
    usage, intervals = problem.usage, problem.intervals
    if (usage is None) != (intervals is None) or (usage is None and problem.limited):
        raise ProblemError("usage, intervals and limit go together")
    if usage is None or intervals is None:
        return
    if usage.shape != problem.unary.shape:
        raise ProblemError(f"{usage.size} usages for {problem.unary.size} choices")
    if not np.all(np.isfinite(usage)) or np.any(usage < 0):
        raise ProblemError("usages must be finite and not negative")
    if float(np.sum(usage.astype(np.float64))) >= _MAX_MAGNITUDE:
        raise ProblemError("usages add up to more than 2**62")
    if intervals.shape != (problem.size, 2) or intervals.dtype.kind not in "iu":
        raise ProblemError(f"intervals must be {problem.size} pairs of integers")
    if np.any(intervals < 0) or np.any(intervals[:, 1] < intervals[:, 0]):
        raise ProblemError("an interval is [start, end) with 0 ≤ start ≤ end")
    if intervals.max(initial=0) > _LAST_STEP:
        raise ProblemError(
            f"time step {intervals.max()} is beyond {_LAST_STEP}: number them closer"
        )
    if problem.limit is not None and (np.isnan(problem.limit) or problem.limit < 0):
        raise ProblemError(f"the usage limit must not be negative, not {problem.limit}")

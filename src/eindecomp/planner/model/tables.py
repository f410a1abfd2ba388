"""Collects variables and shared tables for the solver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.errors import UnsolvedError
from eindecomp.planner import budgets
from eindecomp.planner.costs.price import added, infinite_where, multiplied
from eindecomp.solve import Problem
from eindecomp.solve.clock import planning_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Costs = NDArray[Any]
    Scope = tuple[int, ...]


@dataclass(slots=True)
class CostTables:
    """Variables with unary costs, and tables over several, made once where they are equal.

    Raises `UnsolvedError` before tables take more memory or time than there is.
    """

    deadline: float = inf
    cells: int = 0
    """Costs in all tables so far."""
    unary: list[Costs] = field(default_factory=list[Any])
    tables: list[Costs] = field(default_factory=list[Any])
    uses: Counter[tuple[Scope, int]] = field(default_factory=Counter[Any])
    """How often each table is between which variables."""
    load: list[Costs] = field(default_factory=list[Any])
    """What choices make devices read and hold, which decides where costs are equal."""
    usage: list[Costs] = field(default_factory=list[Any])
    intervals: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    _known: dict[Hashable, int] = field(default_factory=dict[Hashable, int])

    def variable(self, unary: Costs, load: Costs | None = None) -> int:
        """Add a variable and return its number."""
        self.unary.append(unary)
        self.load.append(np.zeros(len(unary), dtype=np.int64) if load is None else load)
        self.usage.append(np.zeros(len(unary), dtype=np.int64))
        self.intervals.append((0, 0))
        return len(self.unary) - 1

    def charge(self, variable: int, unary: Costs, load: Costs) -> None:
        """Add to what the choices of a variable cost and make devices read and hold."""
        self.unary[variable] = self.unary[variable] + unary
        self.load[variable] = self.load[variable] + load

    def use(self, variable: int, usage: Costs, start: int, stop: int) -> None:
        """Say what a variable's choices use from step `start` up to `stop`, beside what they do."""
        if self.intervals[variable] != (0, 0):
            variable = self._twin(variable)
        self.usage[variable] = usage
        self.intervals[variable] = (start, stop)

    def _twin(self, variable: int) -> int:
        """Another variable that always chooses the same."""
        size = len(self.unary[variable])
        twin = self.variable(np.zeros(size, dtype=np.int64))
        other, zero = ~np.eye(size, dtype=bool), np.zeros((1, 1), dtype=np.int64)
        self.table((variable, twin), ("same", size), lambda: infinite_where(other, zero))
        return twin

    def table(self, scope: Scope, key: Hashable, make: Callable[[], Costs]) -> None:
        """Add a table over the choices of several variables, unless it is all zeros."""
        if key not in self._known:
            self._make_room(scope)
            table = make()
            self._known[key] = len(self.tables) if table.any() else -1
            if table.any():
                self.tables.append(table)
        if self._known[key] >= 0:
            self.uses[scope, self._known[key]] += 1

    def _make_room(self, scope: Scope) -> None:
        """Refuse a table for which there is no memory or no time."""
        self.cells += prod(len(self.unary[v]) for v in scope)
        if self.cells > budgets.ALL_CELLS:
            raise UnsolvedError(f"the cost tables have more than {budgets.ALL_CELLS} entries")
        if planning_time() > self.deadline:
            raise UnsolvedError("time is up")

    def problem(self, limit: int | None = None) -> Problem:
        """What the solver takes."""
        limited: dict[str, Any] = {}
        if limit is not None:
            limited = {"usage": self.usage, "intervals": self.intervals, "limit": limit}
        unary = list(self.unary)
        pairs: list[Scope] = []
        table_of: list[int] = []
        tables: dict[int, Costs] = {}
        factors: list[tuple[Scope, Costs]] = []
        made: dict[Hashable, tuple[Scope, Costs]] = {}
        for (scope, number), times in self.uses.items():
            # Which variables are the same, not which ones they are, decides what becomes of it.
            key = (number, times, tuple(scope.index(v) for v in scope))
            if key not in made:
                made[key] = _once_each(key[2], multiplied(self.tables[number], times))
            places, table = made[key]
            own = tuple(scope[k] for k in places)
            if len(own) == 1:
                unary[own[0]] = added(unary[own[0]], table)
            elif len(own) == 2:
                pairs.append(own)
                table_of.append(id(table))
                tables[id(table)] = table
            else:
                factors.append((own, table))
        numbers = {key: number for number, key in enumerate(tables)}
        return Problem.of(
            unary, pairs, list(tables.values()), factors,
            table_of=[numbers[key] for key in table_of], **limited,
        )  # fmt: skip


def _once_each(scope: Scope, table: Costs) -> tuple[Scope, Costs]:
    """A table over distinct variables: where one is named twice, its choices are equal."""
    kept = tuple(dict.fromkeys(scope))
    if kept == scope:
        return scope, table
    return kept, np.ascontiguousarray(np.einsum(table, scope, kept))

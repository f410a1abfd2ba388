"""Collects variables and shared tables for the solver."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from math import inf, prod
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.errors import UnsolvedError
from eindecomp.solve import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Costs = NDArray[Any]

MOST_CELLS = 1 << 26  # costs in all tables together: half a gigabyte


@dataclass(slots=True)
class CostTables:
    """Variables with unary costs, and edges, whose tables are made once where they are equal.

    Raises `UnsolvedError` before tables take more memory or time than there is.
    """

    deadline: float = inf
    cells: int = 0
    """Costs in all tables so far."""
    unary: list[Costs] = field(default_factory=list[Any])
    edges: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    table_of: list[int] = field(default_factory=list[int])
    tables: list[Costs] = field(default_factory=list[Any])
    factors: list[tuple[tuple[int, ...], Costs]] = field(default_factory=list[Any])
    load: list[Costs] = field(default_factory=list[Any])
    """What choices make devices read and hold, which decides where costs are equal."""
    usage: list[Costs] = field(default_factory=list[Any])
    intervals: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    _known: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    _larger: dict[Hashable, Costs] = field(default_factory=dict[Hashable, Any])

    def variable(self, unary: Costs, load: Costs | None = None) -> int:
        """Add a variable and return its number."""
        self.unary.append(unary)
        self.load.append(np.zeros(len(unary), dtype=np.int64) if load is None else load)
        self.usage.append(np.zeros(len(unary), dtype=np.int64))
        self.intervals.append((0, 0))
        return len(self.unary) - 1

    def use(self, variable: int, usage: Costs, start: int, stop: int) -> None:
        """Say what a variable's choices use from step `start` up to `stop`."""
        self.usage[variable] = usage
        self.intervals[variable] = (start, stop)

    def edge(self, u: int, v: int, key: Hashable, make: Callable[[], Costs]) -> None:
        """Add a table over the choices of two variables, unless it is all zeros."""
        if key not in self._known:
            self._make_room((u, v))
            table = make()
            self._known[key] = len(self.tables) if table.any() else -1
            if table.any():
                self.tables.append(table)
        if self._known[key] >= 0:
            self.edges.append((u, v))
            self.table_of.append(self._known[key])

    def factor(self, scope: tuple[int, ...], key: Hashable, make: Callable[[], Costs]) -> None:
        """Add a table over the choices of several variables."""
        if key not in self._larger:
            self._make_room(scope)
            self._larger[key] = make()
        self.factors.append((scope, self._larger[key]))

    def _make_room(self, scope: tuple[int, ...]) -> None:
        """Refuse a table for which there is no memory or no time."""
        self.cells += prod(len(self.unary[v]) for v in scope)
        if self.cells > MOST_CELLS:
            raise UnsolvedError(f"the cost tables have more than {MOST_CELLS} entries")
        if monotonic() > self.deadline:
            raise UnsolvedError("time is up")

    def problem(self, limit: int | None = None) -> Problem:
        """What the solver takes."""
        limited: dict[str, Any] = {}
        if limit is not None:
            limited = {"usage": self.usage, "intervals": self.intervals, "limit": limit}
        return Problem.of(
            self.unary, self.edges, self.tables, self.factors, table_of=self.table_of, **limited
        )

"""Bounds and good choices side by side, for cores that exact methods cannot finish.

A turn is some of the price ascent (bounds, and choices decoded on the way), local search from a
new start, and local search around the best choice. Work is counted in moves, not in seconds, so a
run that ends before its time limit is the same for the same seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic

import numpy as np

from eindecomp.solve.bound.lagrangian import Ascent, settle_prices
from eindecomp.solve.problem.arc_graph import ArcGraph, cost_of, penalised, usage_over_steps
from eindecomp.solve.problem.arrays import Floats, Ints
from eindecomp.solve.search.incumbent import Incumbent
from eindecomp.solve.search.local_search import explore, improve
from eindecomp.solve.search.random_numbers import RandomState

_TURN = 300_000  # variables visited by local search in one turn
_ROUNDS = 500  # regions shaken in one turn, at most
_ASCENT = 4_000_000  # table cells visited by the ascent in one turn
_ITERATIONS = (25, 100)  # of the ascent in one turn, at least and at most
_FIRST_ITERATIONS = 150  # of the ascent before the first turn
_GRACE = 1.0  # seconds beyond the deadline that a first choice may take


@dataclass(slots=True)
class Portfolio:
    """Local search and ascent on one core; `choice` is the best of this core's choices."""

    graph: ArcGraph
    most: float
    """What no finite choice costs more than."""
    best: Incumbent
    deadline: float
    state: RandomState
    rng: np.random.Generator
    ascent: Ascent
    choice: Ints | None = None
    cost: float = np.inf
    starts: list[Ints] = field(default_factory=list[Ints])

    def begin(self, warm: Ints | None) -> None:
        """Find a first choice: the warm one if it fits, else one by high prices."""
        if warm is not None and np.all(usage_over_steps(self.graph, warm) <= self.graph.capacity):
            self.offer(warm)
        elif (first := self._first_choice()) is not None:
            self.offer(first)
            self._settle(first, 1.0)
        self._ascend(_FIRST_ITERATIONS)

    def _first_choice(self) -> Ints | None:
        """A choice by high prices; while there is none at all, time may run out a little."""
        grace = 0.0 if np.isfinite(self.best.cost) else _GRACE
        return settle_prices(self.graph, self.most, self.deadline + grace)

    def work(self, turns: int) -> None:
        """Take turns until they, the time or the gap are used up."""
        iterations = int(np.clip(_ASCENT // (self.graph.cells.size + 1), *_ITERATIONS))
        for _ in range(turns):
            if monotonic() > self.deadline or self.best.closed():
                return
            self._ascend(iterations)
            self._restart()
            self.shake()

    def offer(self, choice: Ints) -> None:
        """Take a choice within capacities if it is the best of this core's."""
        cost = cost_of(self.graph, choice)
        if cost < self.cost:
            self.choice, self.cost = choice.copy(), cost
            self.best.offer(self.choice, cost)

    def _ascend(self, iterations: int) -> None:
        """Improve prices; choices that fit become starts for the local search."""
        best: Ints | None = None
        best_cost = np.inf
        for _ in range(iterations):
            if monotonic() > self.deadline:
                break
            slack = self.ascent.iterate(self.best.target(self.ascent.bound))
            if np.all(slack >= 0) and (cost := cost_of(self.graph, self.ascent.choice)) < best_cost:
                best, best_cost = self.ascent.choice.copy(), cost
        self.best.raise_bound(self.ascent.bound)
        if best is not None:
            self.offer(best)
            self.starts.append(best)

    def _restart(self) -> None:
        """Settle a start of the ascent's, or the best choice, at lower and lower prices."""
        if self.starts:
            start = self.starts.pop()
        elif self.choice is not None and self.rng.random() < 0.2:
            start = self.choice.copy()
        else:
            return
        self._settle(start, float(self.rng.choice([0.5, 1.0, 1.5])))

    def _settle(self, choice: Ints, price_scale: float) -> None:
        n = choice.size
        most = int(self.rng.choice([30, 100, 300]))
        used = usage_over_steps(self.graph, choice)
        for scale in (price_scale, 0.5 * price_scale, 0.0):
            unary = self._priced(scale)
            for _ in range(4):
                if monotonic() > self.deadline:
                    break
                improve(self.graph, unary, choice, used, self.state, min(n, _TURN // most), most)
            self.offer(choice)

    def shake(self) -> None:
        """Shake and settle regions of the best choice."""
        if self.choice is None:
            return
        n = self.choice.size
        most = int(self.rng.choice([10, 30, 100, 300]))
        reach = int(self.rng.choice([10, 50, 200, 1000]))
        noise = float(self.rng.choice([0.01, 0.1, 1.0, 10.0])) * abs(self.cost) / n
        scale = float(self.rng.choice([0.0, 0.5, 1.0]))
        choice = self.choice.copy()
        used = usage_over_steps(self.graph, choice)
        rounds = min(max(1, _TURN // (min(reach, n) * min(most, n))), _ROUNDS)
        explore(
            self.graph, self._priced(scale), choice, used, self.state, rounds, most, noise, reach
        )
        self.offer(choice)
        # A choice no worse but different is a better place to go on from than the same again.
        if cost_of(self.graph, choice) == self.cost:
            self.choice = choice

    def _priced(self, scale: float) -> Floats:
        return (
            self.graph.unary
            if scale == 0.0
            else penalised(self.graph, scale * self.ascent.best_price)
        )

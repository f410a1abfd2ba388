"""Lagrangian prices on time steps: a lower bound under the usage limit, and good starting choices.

For any prices λ ≥ 0 the minimum of cost + λ·(usage - capacity) bounds the optimum from below.
Prices take Polyak's subgradient steps, and messages (TRW-S) are carried over from step to step, so
that an iteration takes only two sweeps. Without a limit this is TRW-S alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from eindecomp.solve.bound import message_passing
from eindecomp.solve.clock import planning_time
from eindecomp.solve.problem.arc_graph import ArcGraph, cost_of, penalised, usage_over_steps
from eindecomp.solve.problem.arrays import Floats, Ints

_PATIENCE = 25  # iterations without a clear gain after which steps shrink
_SLOWEST = 1e-3
_FEWEST_ROUNDS = 10  # of raising prices for a first choice, even if time is up
_ROUNDING = 16 * np.finfo(np.float64).eps


@dataclass(slots=True)
class Ascent:
    """Prices and messages of an ascent towards the best bound; mutable, one per search."""

    graph: ArcGraph
    price: Floats
    messages: Floats
    best_price: Floats
    bound: float = -np.inf
    pace: float = 1.0
    stalled: int = 0
    mark: float = -1e300
    drift: Floats | None = None
    choice: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @staticmethod
    def begin(
        graph: ArcGraph, price: Floats | None = None, messages: Floats | None = None
    ) -> Ascent:
        """Start from given prices and messages, or from zero."""
        price = np.zeros(graph.capacity.size) if price is None else price
        messages = np.zeros(int(graph.message[-1])) if messages is None else messages
        choice = np.zeros(graph.offset.size - 1, dtype=np.int64)
        return Ascent(graph, price, messages, price.copy(), choice=choice)

    def iterate(self, upper: float) -> Floats:
        """Sweep, bound, decode into `choice`, and move the prices; the slack of the choice.

        `upper` is the cost of a known choice, or a guess: it only sets the length of steps.
        """
        graph = self.graph
        unary = penalised(graph, self.price)
        message_passing.sweep(graph, unary, self.messages, True)
        message_passing.sweep(graph, unary, self.messages, False)
        value = self._record(unary)
        message_passing.decode(graph, unary, self.messages, self.choice)
        over = usage_over_steps(graph, self.choice) - graph.capacity
        if self.price.size:
            self._move_prices(over, value, upper)
        return -over

    def _record(self, unary: Floats) -> float:
        raw, magnitude = message_passing.bound(self.graph, unary, self.messages)
        paid = self.price * self.graph.capacity
        value = raw - float(paid.sum()) - _ROUNDING * (magnitude + float(np.abs(paid).sum()))
        if value > self.bound:
            self.bound = value
            self.best_price = self.price.copy()
        return value

    def _move_prices(self, over: Floats, value: float, upper: float) -> None:
        self.stalled += 1
        if self.bound > self.mark + 1e-4 * abs(upper - self.mark):
            self.mark = self.bound
            self.stalled = 0
        if self.stalled > _PATIENCE:
            self.pace = max(0.7 * self.pace, _SLOWEST)
            self.stalled = 0
            self.price = self.best_price.copy()
            self.drift = None
        self.drift = over if self.drift is None else 0.7 * self.drift + 0.3 * over
        ahead = np.where((self.price <= 0) & (self.drift < 0), 0.0, self.drift)
        length = float(ahead @ ahead)
        if length == 0.0:
            self.drift = None
            self.price = 0.5 * self.price
            return
        distance = max(upper - value, 1e-6 * abs(upper))
        self.price = round_to_grid(
            np.maximum(0.0, self.price + self.pace * distance / length * ahead)
        )


def round_to_grid(price: Floats) -> Floats:
    """Prices rounded so that their sums are exact in float64: bounds then hold to the last bit."""
    total = float(price.sum())
    if total <= 0.0 or not np.isfinite(total):
        return np.zeros_like(price)
    quantum = 2.0 ** (np.ceil(np.log2(total)) - 50)
    return np.floor(price / quantum) * quantum


def settle_prices(graph: ArcGraph, most: float, deadline: float, rounds: int = 60) -> Ints | None:
    """A choice within all capacities that costs at most `most`, by raising prices on usage.

    None if there was none in time.
    """
    steps = graph.capacity.size
    choice = np.zeros(graph.offset.size - 1, dtype=np.int64)
    messages = np.zeros(int(graph.message[-1]))
    emphasis = np.ones(steps)
    largest = usage_over_steps(graph, _largest_usage(graph))
    scale = (1.0 + abs(cost_of(graph, choice))) / (1.0 + float(largest.sum()))
    for turn in range(rounds):
        unary = penalised(graph, round_to_grid(scale * emphasis))
        for _ in range(3):
            message_passing.sweep(graph, unary, messages, True)
            message_passing.sweep(graph, unary, messages, False)
        message_passing.decode(graph, unary, messages, choice)
        over = usage_over_steps(graph, choice) - graph.capacity
        fits = bool(np.all(over <= 0))
        if fits and cost_of(graph, choice) <= most:
            return choice
        if turn >= _FEWEST_ROUNDS and planning_time() > deadline:
            return None
        if not fits:
            scale *= 1.7
            emphasis *= np.where(over > 0, 2.0, 0.9)
            emphasis /= emphasis.mean()
    return None


def _largest_usage(graph: ArcGraph) -> Ints:
    """For each variable the choice with the largest usage summed over its items."""
    total = penalised(graph, np.ones(graph.capacity.size)) - graph.unary
    sizes = np.diff(graph.offset)
    peaks = np.maximum.reduceat(total, graph.offset[:-1])
    at_peak = np.flatnonzero(total == np.repeat(peaks, sizes))
    owner = np.searchsorted(graph.offset, at_peak, side="right") - 1
    _, first = np.unique(owner, return_index=True)
    return at_peak[first] - graph.offset[:-1]

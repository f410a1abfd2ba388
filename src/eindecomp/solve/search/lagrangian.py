"""Lagrangian prices on time steps: a lower bound under the usage limit, and good starting choices.

For any prices λ ≥ 0 the minimum of cost + λ·(usage - capacity) bounds the optimum from below.
Prices take Polyak's subgradient steps, and messages are carried over from step to step, so that an
iteration takes only two sweeps. Without a limit this is message passing alone: sequential,
tree-reweighted (TRW-S). Messages only shift costs between tables, so whatever they are, the sum of
the minima of all variables and edges bounds the optimum from below. `sweep` improves the messages,
`proved_bound` evaluates them, `decode` derives a choice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from eindecomp.solve import budgets
from eindecomp.solve.clock import has_passed
from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import Floats, Ints, largest_places
from eindecomp.solve.problem.core import ArcGraph, cost_of, penalised, usage_over_steps

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
        sweep(graph, unary, self.messages, True)
        sweep(graph, unary, self.messages, False)
        raw, magnitude = proved_bound(graph, unary, self.messages)
        paid = self.price * graph.capacity
        value = raw - float(paid.sum()) - _ROUNDING * (magnitude + float(np.abs(paid).sum()))
        if value > self.bound:
            self.bound = value
            self.best_price = self.price.copy()
        decode(graph, unary, self.messages, self.choice)
        over = usage_over_steps(graph, self.choice) - graph.capacity
        if self.price.size:
            self._move_prices(over, value, upper)
        return -over

    def _move_prices(self, over: Floats, value: float, upper: float) -> None:
        self.stalled += 1
        if self.bound > self.mark + 1e-4 * abs(upper - self.mark):
            self.mark = self.bound
            self.stalled = 0
        if self.stalled > budgets.PRICE_PATIENCE:
            self.pace = max(0.7 * self.pace, budgets.SLOWEST_PACE)
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
        moved = self.price + self.pace * distance / length * ahead
        self.price = round_to_grid(np.maximum(0.0, moved))


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
    each_usage = penalised(graph, np.ones(steps)) - graph.unary
    largest = usage_over_steps(graph, largest_places(each_usage, graph.offset))
    scale = (1.0 + abs(cost_of(graph, choice))) / (1.0 + float(largest.sum()))
    for turn in range(rounds):
        unary = penalised(graph, round_to_grid(scale * emphasis))
        for _ in range(3):
            sweep(graph, unary, messages, True)
            sweep(graph, unary, messages, False)
        decode(graph, unary, messages, choice)
        over = usage_over_steps(graph, choice) - graph.capacity
        fits = bool(np.all(over <= 0))
        if fits and cost_of(graph, choice) <= most:
            return choice
        if turn >= budgets.FEWEST_ROUNDS and has_passed(deadline):
            return None
        if not fits:
            scale *= 1.7
            emphasis *= np.where(over > 0, 2.0, 0.9)
            emphasis /= emphasis.mean()
    return None


@compiled
def sweep(graph: ArcGraph, unary: Floats, messages: Floats, forward: bool) -> None:
    """One pass over the variables, forward or backward, that updates messages in place."""
    n = graph.offset.size - 1
    belief = np.zeros(largest_domain(graph))
    for position in range(n):
        s = position if forward else n - 1 - position
        ahead = gather(graph, unary, messages, belief, s, forward)
        scatter(graph, messages, belief, s, forward, ahead)


@compiled
def gather(
    graph: ArcGraph, unary: Floats, messages: Floats, belief: Floats, s: int, forward: bool
) -> int:
    """Add up the belief of `s`, its unary costs and incoming messages; how many arcs lead ahead."""
    size = graph.offset[s + 1] - graph.offset[s]
    ahead = 0
    for k in range(size):
        belief[k] = unary[graph.offset[s] + k]
    for a in range(graph.start[s], graph.start[s + 1]):
        incoming = graph.message[graph.back[a]]
        for k in range(size):
            belief[k] += messages[incoming + k]
        if (graph.to[a] > s) == forward:
            ahead += 1
    return ahead


@compiled
def scatter(
    graph: ArcGraph, messages: Floats, belief: Floats, s: int, forward: bool, ahead: int
) -> None:
    """Send the belief of `s`, divided among its arcs, along those that lead ahead."""
    share = 1.0 / max(ahead, graph.start[s + 1] - graph.start[s] - ahead, 1)
    for a in range(graph.start[s], graph.start[s + 1]):
        if (graph.to[a] > s) == forward:
            _send(graph, messages, belief, share, a, graph.offset[s + 1] - graph.offset[s])


@compiled
def _send(
    graph: ArcGraph, messages: Floats, belief: Floats, share: float, a: int, size: int
) -> None:
    incoming = graph.message[graph.back[a]]
    out = messages[graph.message[a] : graph.message[a + 1]]
    width = out.size
    for k in range(size):
        free = share * belief[k] - messages[incoming + k]
        row = graph.cells[graph.table[a] + k * width : graph.table[a] + (k + 1) * width]
        if k == 0:
            for j in range(width):
                out[j] = row[j] + free
        else:
            for j in range(width):
                out[j] = min(out[j], row[j] + free)
    least = out[0]
    for j in range(width):
        least = min(least, out[j])
    for j in range(width):
        out[j] -= least


@compiled
def proved_bound(graph: ArcGraph, unary: Floats, messages: Floats) -> tuple[float, float]:
    """The bound that the messages prove, and a sum of magnitudes that limits its rounding error.

    A variable's belief is divided among its edges to earlier variables, as in a backward sweep.
    """
    total, magnitude = 0.0, 0.0
    belief = np.zeros(largest_domain(graph))
    for s in range(graph.offset.size - 1):
        size = graph.offset[s + 1] - graph.offset[s]
        behind, degree = 0, graph.start[s + 1] - graph.start[s]
        largest = 0.0
        for k in range(size):
            belief[k] = unary[graph.offset[s] + k]
            if belief[k] < np.inf:
                largest = max(largest, abs(belief[k]))
        for a in range(graph.start[s], graph.start[s + 1]):
            incoming = graph.message[graph.back[a]]
            reach = 0.0
            for k in range(size):
                belief[k] += messages[incoming + k]
                reach = max(reach, abs(messages[incoming + k]))
            largest += reach
            if graph.to[a] < s:
                behind += 1
        share = 1.0 / max(behind, degree - behind, 1)
        for a in range(graph.start[s], graph.start[s + 1]):
            if graph.to[a] < s:
                total += _edge_least(graph, messages, belief, share, a, size)
        total += max(1.0 - behind * share, 0.0) * belief[:size].min()
        magnitude += abs(total) + largest * (degree + 4)
    return total, magnitude


@compiled
def _edge_least(
    graph: ArcGraph, messages: Floats, belief: Floats, share: float, a: int, size: int
) -> float:
    """The minimum of an edge's reparametrised costs plus its share of the source's belief."""
    incoming, outgoing = graph.message[graph.back[a]], graph.message[a]
    width = graph.message[a + 1] - outgoing
    least = np.inf
    for k in range(size):
        free = share * belief[k] - messages[incoming + k]
        row = graph.table[a] + k * width
        for j in range(width):
            least = min(least, graph.cells[row + j] + free - messages[outgoing + j])
    return least


@compiled
def decode(graph: ArcGraph, unary: Floats, messages: Floats, choice: Ints) -> None:
    """Fix variables in order, each to its best given those fixed and the messages of the rest."""
    belief = np.zeros(largest_domain(graph))
    for s in range(graph.offset.size - 1):
        size = graph.offset[s + 1] - graph.offset[s]
        for k in range(size):
            belief[k] = unary[graph.offset[s] + k]
        for a in range(graph.start[s], graph.start[s + 1]):
            back, t = graph.back[a], graph.to[a]
            base = graph.message[back]
            if t > s:
                for k in range(size):
                    belief[k] += messages[base + k]
            else:
                row = graph.table[back] + choice[t] * size
                for k in range(size):
                    belief[k] += graph.cells[row + k]
        choice[s] = np.argmin(belief[:size])


@compiled
def largest_domain(graph: ArcGraph) -> int:
    """The largest number of choices of any variable."""
    largest = 1
    for v in range(graph.offset.size - 1):
        largest = max(largest, graph.offset[v + 1] - graph.offset[v])
    return largest

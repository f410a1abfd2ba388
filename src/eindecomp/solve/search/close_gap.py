"""Closes the gap between the best choice and the bound, by searching and shrinking in turns.

Every better choice allows more reduced-cost fixing: choices whose bound exceeds the best known cost
are dropped, and the rest is reduced again, often to a fraction of its size. The search continues
there until nothing better is left, branch and bound finishes, or time is up.

A turn of the search runs some iterations of the price ascent (which gives bounds, and choices
decoded from them), local search from a new start, and local search around the best choice. Work is
measured in moves, not seconds, so runs with the same seed are identical unless the time limit cuts
them short. The `Incumbent` keeps the best choice and bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from eindecomp.errors import InfeasibleError
from eindecomp.solve import budgets
from eindecomp.solve.clock import has_passed
from eindecomp.solve.problem.arrays import Floats, Ints
from eindecomp.solve.problem.core import (
    ArcGraph,
    Core,
    arc_graph_of,
    cost_of,
    penalised,
    usage_over_steps,
)
from eindecomp.solve.search.branch_and_bound import Branching, fix_choices, propagate
from eindecomp.solve.search.lagrangian import Ascent, settle_prices
from eindecomp.solve.search.local_search import explore, improve
from eindecomp.solve.search.random_trees import RandomState
from eindecomp.solve.search.reduce import Reduced, reduce_core
from eindecomp.solve.search.substitute import keep_choices, substitute


def close_gap(core: Core, incumbent: Incumbent, deadline: float, seed: int) -> bool:
    """Search a core until time is up; whether the best choice is proved to be optimal."""
    rng = np.random.default_rng(seed)
    state = rng.integers(1, 2**63, size=1, dtype=np.uint64)
    warm: Ints | None = None
    turns = budgets.NEW_CORE_TURNS
    while True:
        core, most = finite(core)
        incumbent.constant = core.constant
        graph = arc_graph_of(core)
        portfolio = Portfolio(graph, most, incumbent, deadline, state, rng, Ascent.begin(graph))
        portfolio.begin(warm)
        smaller: Reduced | None = None
        while smaller is None:
            portfolio.work(turns)
            if incumbent.closed() or has_passed(deadline):
                return incumbent.closed()
            smaller = _shrink(core, portfolio, incumbent.cutoff(most))
            if smaller is None or smaller.core.size == 0:
                if smaller is not None:  # the only choice left may be better than the best known
                    last = smaller.lift(np.zeros(0, dtype=np.int64))
                    incumbent.offer(last, smaller.core.constant - incumbent.constant)
                incumbent.close()
                return True
            if smaller.core.unary.size > budgets.SHRINK * core.unary.size:
                smaller = None
                is_small = graph.unary.size < budgets.BRANCH_CHOICES
                may_branch = graph.cells.size < 2 * budgets.BRANCH_CELLS
                if is_small or (may_branch and turns >= budgets.BRANCH_TURNS):
                    return _branch(portfolio, most)
                turns *= 2
        turns = budgets.NEW_CORE_TURNS
        warm = None if portfolio.choice is None else smaller.push(portfolio.choice)
        incumbent.lift = _chained(incumbent.lift, smaller)
        core = smaller.core


def finite(core: Core) -> tuple[Core, float]:
    """The core with ∞ replaced by more than any finite choice costs, and the most that one can."""
    magnitude = 0.0
    for costs, offset in ((core.unary, core.offset), (core.tables, core.table_offset)):
        if costs.size:
            size = np.where(np.isfinite(costs), np.abs(costs), 0.0)
            magnitude += float(np.maximum.reduceat(size, offset[:-1]).sum())
    huge = 2.0 * magnitude + 1.0
    unary = np.where(np.isfinite(core.unary), core.unary, huge)
    tables = np.where(np.isfinite(core.tables), core.tables, huge)
    return core._replace(unary=unary, tables=tables), magnitude


def _chained(lift: Callable[[Ints], Ints], smaller: Reduced) -> Callable[[Ints], Ints]:
    return lambda choice: lift(smaller.lift(choice))


def _shrink(core: Core, portfolio: Portfolio, cutoff: float) -> Reduced | None:
    """The core without choices that must cost more than the cutoff; None if no choice is left."""
    graph = portfolio.graph
    keep = np.ones(core.unary.size, dtype=np.bool_)
    ascent = portfolio.ascent
    price = ascent.best_price
    unary = penalised(graph, price)
    messages = ascent.messages.copy()
    fits = propagate(graph, keep) and fix_choices(graph, unary, messages, keep, cutoff, price)
    if not fits:
        return None
    sub = keep_choices(core, keep)
    try:
        reduced = reduce_core(substitute(core, sub), portfolio.deadline)
    except InfeasibleError:
        return None
    if reduced.core.capacity.size and reduced.core.capacity.min() < 0:
        return None
    return Reduced(reduced.core, (sub, *reduced.steps))


def _branch(portfolio: Portfolio, most: float) -> bool:
    """Branch and bound, with local search now and then; whether the optimum is proved."""
    incumbent = portfolio.incumbent
    branching = Branching(portfolio.graph, portfolio.ascent, incumbent.margin())
    branching.start()
    for count, (bound, choice) in enumerate(branching.run(incumbent.cutoff(most))):
        if choice is not None:
            portfolio.offer(choice)
        incumbent.raise_bound(bound)
        if incumbent.closed() or has_passed(portfolio.deadline):
            return incumbent.closed()
        if count % 500 == 499:
            portfolio.shake()
    incumbent.close()
    return True


@dataclass(slots=True)
class Portfolio:
    """Local search and ascent on one core; `choice` is the best of this core's choices."""

    graph: ArcGraph
    most: float
    """An upper bound on the cost of any finite choice."""
    incumbent: Incumbent
    deadline: float
    state: RandomState
    rng: np.random.Generator
    ascent: Ascent
    choice: Ints | None = None
    cost: float = np.inf
    starts: list[Ints] = field(default_factory=list[Ints])

    def begin(self, warm: Ints | None) -> None:
        """Find a first choice: the warm start if it fits, or else one by high prices."""
        if warm is not None and np.all(usage_over_steps(self.graph, warm) <= self.graph.capacity):
            self.offer(warm)
        else:
            # A little past the deadline if there is no choice at all yet.
            grace = 0.0 if np.isfinite(self.incumbent.cost) else budgets.FIRST_CHOICE_GRACE
            first = settle_prices(self.graph, self.most, self.deadline + grace)
            if first is not None:
                self.offer(first)
                self._settle(first, 1.0)
        self._ascend(budgets.FIRST_ITERATIONS)

    def work(self, turns: int) -> None:
        """Take so many turns, fewer if time is up or the gap is closed."""
        affordable = budgets.TURN_CELLS // (self.graph.cells.size + 1)
        iterations = int(np.clip(affordable, *budgets.TURN_ITERATIONS))
        for _ in range(turns):
            if self.incumbent.closed() or has_passed(self.deadline):
                return
            self._ascend(iterations)
            self._restart()
            self.shake()

    def offer(self, choice: Ints) -> None:
        """Take a choice within capacities if it is the best of this core's."""
        cost = cost_of(self.graph, choice)
        if cost < self.cost:
            self.choice, self.cost = choice.copy(), cost
            self.incumbent.offer(self.choice, cost)

    def _ascend(self, iterations: int) -> None:
        """Improve prices; the best choice met that fits is a start for local search."""
        best: Ints | None = None
        best_cost = np.inf
        for _ in range(iterations):
            if has_passed(self.deadline):
                break
            slack = self.ascent.iterate(self.incumbent.target(self.ascent.bound))
            if np.all(slack >= 0) and (cost := cost_of(self.graph, self.ascent.choice)) < best_cost:
                best, best_cost = self.ascent.choice.copy(), cost
        self.incumbent.raise_bound(self.ascent.bound)
        if best is not None:
            self.offer(best)
            self.starts.append(best)

    def _restart(self) -> None:
        """Improve a start from the ascent, or now and then the best choice, at falling prices."""
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
        moves = min(n, budgets.TURN_VARIABLES // most)
        for scale in (price_scale, 0.5 * price_scale, 0.0):
            unary = self._priced(scale)
            for _ in range(4):
                if has_passed(self.deadline):
                    break
                improve(self.graph, unary, choice, used, self.state, moves, most)
            self.offer(choice)

    def shake(self) -> None:
        """Perturb regions of the best choice and improve them again."""
        if self.choice is None:
            return
        n = self.choice.size
        most = int(self.rng.choice([10, 30, 100, 300]))
        reach = int(self.rng.choice([10, 50, 200, 1000]))
        noise = float(self.rng.choice([0.01, 0.1, 1.0, 10.0])) * abs(self.cost) / n
        scale = float(self.rng.choice([0.0, 0.5, 1.0]))
        choice = self.choice.copy()
        used = usage_over_steps(self.graph, choice)
        rounds = max(1, budgets.TURN_VARIABLES // (min(reach, n) * min(most, n)))
        rounds, unary = min(rounds, budgets.TURN_REGIONS), self._priced(scale)
        explore(self.graph, unary, choice, used, self.state, rounds, most, noise, reach)
        self.offer(choice)
        # To go on from a different choice of the same cost is better than from the same one again.
        if cost_of(self.graph, choice) == self.cost:
            self.choice = choice

    def _priced(self, scale: float) -> Floats:
        price = scale * self.ascent.best_price
        return penalised(self.graph, price) if scale else self.graph.unary


@dataclass(slots=True)
class Incumbent:
    """The record of a search; costs passed in are those of a core without its `constant`.

    `lift` turns a core's choice into the problem's. Both are replaced when the core shrinks to a
    smaller one, which keeps every choice that is better than the best known.
    """

    on_choice: Callable[[Ints], None]
    on_bound: Callable[[float], None]
    integral: bool
    lift: Callable[[Ints], Ints]
    constant: float = 0.0
    cost: float = np.inf
    bound: float = -np.inf

    def offer(self, choice: Ints, cost: float) -> None:
        """Take a core's choice if it is better."""
        if cost + self.constant < self.cost:
            self.cost = cost + self.constant
            self.on_choice(self.lift(choice))

    def raise_bound(self, bound: float) -> None:
        """Take a bound on the core, which bounds the problem up to the best known cost."""
        proved = min(bound + self.constant, self.cost)
        if proved > self.bound:
            self.bound = proved
            self.on_bound(proved)

    def close(self) -> None:
        """Note that no better choice exists."""
        if np.isfinite(self.cost):
            self.raise_bound(self.cost - self.constant - (0.0 if self.integral else self.margin()))

    def closed(self) -> bool:
        """Whether no better choice can exist."""
        return bool(np.isfinite(self.cost)) and self.bound > self.cost - self.margin()

    def margin(self) -> float:
        """How much less a choice must cost to count as better."""
        if self.integral:
            return 1.0 - 1e-6
        return budgets.ROUNDING * abs(self.cost) if np.isfinite(self.cost) else 0.0

    def cutoff(self, most: float) -> float:
        """The most that a better choice of the core can cost; `most` if none is known."""
        return min(self.cost - self.margin() - self.constant, most)

    def target(self, bound: float) -> float:
        """An estimate of the core's optimum, which sets the length of subgradient steps."""
        if np.isfinite(self.cost):
            return self.cost - self.constant
        return 1.2 * max(bound, 0.0) + 1.0

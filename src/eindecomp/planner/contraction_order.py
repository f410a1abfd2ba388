"""Chooses the order of contractions together with the plan.

The usual order is planned first, unless the one that stores the least promises less. Of every other
one a lower bound is found by numbers of pieces alone; those whose bound is below the best cost so
far are planned, the most promising ones first.
The bound of the whole is the least of all bounds. Where orders are too many to consider all
of them, one contraction is ordered anew at a time, until that does not help any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from eindecomp.errors import EinDecompError, InfeasibleError, PlanError
from eindecomp.layout.view import view_of
from eindecomp.planner import budgets
from eindecomp.planner.minimize_movement import minimize_movement, relaxed_bound
from eindecomp.planner.options import Orders, check_countable, unproved
from eindecomp.planner.search.contractions import Contractions
from eindecomp.planner.space.restriction import WorkLimit
from eindecomp.planner.space.viable import viable_parts
from eindecomp.solve.clock import planning_time
from eindecomp.solve.run import Progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.orders import Order
    from eindecomp.planner.options import Chosen, Options

State = tuple["Order", ...]
"""An order for each contraction."""


@dataclass(frozen=True)
class Ordered:
    """The graph in the order that was chosen, its plan, and among how many orders it was."""

    graph: Graph
    chosen: Chosen
    orders: Orders | None = None


def minimize_with_order(graph: Graph, options: Options, work: float) -> Ordered:
    """The best plan over all orders of contractions within the limit on work.

    `graph` is the graph as written; that of the options is its usual rewritten form.
    """
    if len(options.graph.vertices) > budgets.ORDERED_VERTICES:
        return Ordered(options.graph, minimize_movement(options))
    limit = inf if options.objective == "time" else work
    rules = options.rules
    keep = {*rules.pinned, *rules.tie, *rules.tie.values()}
    contractions = Contractions.of(graph, options.graph, keep, limit)
    if not contractions.orderings:
        return Ordered(options.graph, minimize_movement(options))
    search = _OrderSearch(options, contractions)
    best = search.run()
    bound = min(min(search.bounds.values()), best.chosen.costs.total)
    best = replace(best, chosen=replace(best.chosen, bound=bound))
    if options.solver == "exact" and bound < best.chosen.costs.total * (1 - budgets.SUM_ROUNDING):
        raise unproved(best.chosen.costs.total, bound)
    return best


@dataclass
class _OrderSearch:
    """The states that were considered, and the best plan so far."""

    options: Options
    contractions: Contractions
    bounds: dict[State, float] = field(default_factory=dict[State, float])
    """A bound on the cost of every plan of each state that was considered."""
    relaxed: dict[State, float] = field(default_factory=dict[State, float])
    """What is known of states that have not been considered yet."""
    best: tuple[State, Ordered] | None = None
    first_error: EinDecompError | None = None
    started: float = field(default_factory=planning_time)
    deadline: float = inf

    @property
    def usual(self) -> State:
        """The usual order of every contraction, or the first within the limit."""
        return tuple(ordering.first for ordering in self.contractions.orderings)

    @property
    def cost(self) -> float:
        """The cost of the best plan so far."""
        return inf if self.best is None else self.best[1].chosen.costs.total

    def run(self) -> Ordered:
        """Plan the usual order or the most promising one, then others that may be better."""
        orders, first = self.contractions, self.usual
        several = orders.different > 1
        limit = self.options.time_limit
        leading = self._leading(first) if several else first
        share = limit * (budgets.FIRST_ORDER_SHARE if several else 1)
        left = max(share - (planning_time() - self.started), share / 2)
        self._plan(leading, self._options(leading, left))
        now = planning_time()
        least, times = budgets.OTHER_MERGED_ORDERS if orders.merged else budgets.OTHER_ORDERS
        left = max(
            self.started + limit - now, (1 - budgets.FIRST_ORDER_SHARE) * limit
        )  # if the first overran
        enough = max(least, times * (now - self.started))
        self.deadline = now + (left if self.best is None else min(left, enough))
        complete = orders.complete and orders.different <= budgets.ORDERS
        if not several or self.cost <= 0:  # nothing costs less than nothing
            complete = orders.complete
        elif complete:
            states = orders.states()
            self._consider([first, states[0]])
            complete = self._consider(states)
        else:
            self._consider([first])
            self._descend(first)
        if self.best is None:
            raise self.first_error or PlanError(
                f"no order of contractions could be planned on {self.options.mesh.devices} devices "
                f"within {limit:g} s: give a longer time_limit, or rewrite=False"
            )
        return self._ordered(self.best[0], self.best[1], complete=complete)

    def _leading(self, first: State) -> State:
        """What to plan first: the usual order, or that which stores the least if it promises less.

        Where a sum was written as one vertex, the usual order is but a guess, on which a search can
        spend all its time. What was written one by one is planned as written.
        """
        if self.contractions.merged or self.contractions.different > budgets.ORDERS:
            return first
        limit = min(budgets.BOUND_TIME, budgets.LOOK_SHARE * self.options.time_limit)
        promised = self._relaxed(first, self._options(first, limit))
        if promised <= 0:
            return first
        least = self.contractions.states()[0]
        return least if self._relaxed(least, self._options(least, limit)) < promised else first

    def _relaxed(self, state: State, options: Options | None) -> float:
        """A bound on the cost of a state's plans by numbers of pieces alone."""
        if state not in self.relaxed:
            self.relaxed[state] = inf if options is None else relaxed_bound(options)
        return self.relaxed[state]

    def _ordered(self, state: State, ordered: Ordered, *, complete: bool) -> Ordered:
        """The best plan, chosen among the orders about which no less is known than about its own.

        An order that could not be bounded as well in the time there is does not count.
        """
        own = self.bounds[state]
        kept = {other: bound for other, bound in self.bounds.items() if bound >= own}
        complete = complete and len(kept) == len(self.bounds)
        self.bounds = kept
        count = self.contractions.count if complete else len(self.bounds)
        assert ordered.orders is not None  # noqa: S101 - every plan of an order has it
        return replace(ordered, orders=Orders(count, complete, ordered.orders.most))

    def _consider(self, states: Iterable[State]) -> bool:
        """Plan the states whose bound is below the best cost, from the lowest bound up.

        Bounds take half of the time that is left, then some states are planned, and so on. Returns
        whether there was time for all; those for which there was none do not count.
        """
        waiting = [state for state in states if state not in self.bounds]
        complete = True
        while waiting and complete and self.cost > 0:
            found = self._bounded(waiting)
            complete = bool(found) and self._plan_promising(found)
            waiting = waiting[len(found) :]
        return complete

    def _bounded(self, states: Sequence[State]) -> list[tuple[State, Options | None]]:
        """As many of the first states as can be bounded in half of the time that is left."""
        until = (planning_time() + self.deadline) / 2
        found: list[tuple[State, Options | None]] = []
        for state in states:
            left = self.deadline - planning_time()
            scarce = left < (
                0 if self.best is None else budgets.LEAST_BOUND_TIME
            )  # without any plan, go on
            if scarce or (found and planning_time() > until):
                break
            options = self._options(state, max(left, budgets.BOUND_TIME))
            if options is not None:
                self.bounds[state] = self._relaxed(state, options)
            found.append((state, options))
        return found

    def _plan_promising(self, states: Iterable[tuple[State, Options | None]]) -> bool:
        """Plan states that have a bound from the lowest up; whether there was time for all."""
        found = [(self.bounds[state], state, given) for state, given in states if given is not None]
        complete = True
        for k, (bound, state, options) in enumerate(sorted(found, key=lambda each: each[0])):
            left = self.deadline - planning_time()
            if not self._may_be_better(state, bound):
                continue
            if left <= 0:
                del self.bounds[state]
                complete = False
                continue
            self._tell(f"order {k + 1} of {len(found)}")
            self._plan(state, replace(options, time_limit=max(left / 2, min(left, 1.0))))
        return complete

    def _descend(self, state: State) -> None:
        """Change the order of one contraction at a time, in all that are alike, while it helps."""
        orderings = self.contractions.orderings
        alike: dict[object, list[int]] = {}
        for k, ordering in enumerate(orderings):
            alike.setdefault(ordering.key, []).append(k)
        before = inf
        while self.cost < before and planning_time() < self.deadline:
            before = self.cost
            for places in alike.values():
                state = state if self.best is None else self.best[0]
                own = orderings[places[0]]
                listed = [*own.orders]
                if not own.complete:
                    listed += own.contraction.near(state[places[0]], own.limit)
                self._consider(
                    tuple(order if k in places else kept for k, kept in enumerate(state))
                    for order in dict.fromkeys(listed)
                )

    def _may_be_better(self, state: State, bound: float) -> bool:
        """Whether a state is chosen if it costs no more than its bound: the usual one on a tie."""
        if self.best is None:
            return True
        margin = budgets.SUM_ROUNDING * abs(self.cost)
        return bound < self.cost + (margin if state == self.usual else -margin)

    def _options(self, state: State, time_limit: float) -> Options | None:
        """What is asked of one state; None if it cannot be cut within the limit on work."""
        named = zip(self.contractions.orderings, state, strict=True)
        graph, most = self.contractions.ordered({own.name: order for own, order in named})
        exact = self.options.solver == "exact"
        options = replace(
            self.options,
            graph=graph,
            restriction=WorkLimit(most) if most else self.options.restriction,
            solver="auto" if exact else self.options.solver,
            time_limit=time_limit,
        )
        mesh = options.mesh
        try:
            check_countable(graph, mesh)
            for name in most:
                view = view_of(graph, graph[name])
                rows = viable_parts(view.sizes, mesh.sizes, even=mesh.cuts_evenly)
                if not WorkLimit(most)(graph[name], view, rows, mesh).any():
                    return None
        except PlanError:
            return None  # too many bytes, or too many ways to cut a vertex, to count
        return options

    def _plan(self, state: State, options: Options | None) -> None:
        if options is None:
            return
        if self.best is not None:
            options = replace(options, on_event=None)
        try:
            chosen = minimize_movement(options)
        except (PlanError, InfeasibleError) as error:
            self.first_error = self.first_error or error
            return
        self.bounds[state] = max(self.bounds.get(state, 0), chosen.bound)
        if self._may_be_better(state, chosen.costs.total):
            limit = options.restriction
            orders = Orders(1, True)
            if isinstance(limit, WorkLimit):
                orders = replace(orders, most=limit.most)
            self.best = state, Ordered(options.graph, chosen, orders)

    def _tell(self, stage: str) -> None:
        on_event = self.options.on_event
        if on_event is not None:
            bound = min(self.bounds.values())
            on_event(Progress(planning_time() - self.started, stage, self.cost, bound))

"""Chooses the order of contractions together with the plan.

The usual order is planned first, unless the one that stores the least promises less. Every other
order gets a lower bound, by numbers of pieces alone; those whose bound is below the best cost so
far are planned, the most promising ones first. The bound of the whole is the least of all bounds.
Where there are too many orders to consider, one contraction at a time is ordered anew, until that
no longer helps.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import inf, prod

from eindecomp.errors import EinDecompError, InfeasibleError, PlanError
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input
from eindecomp.graph.orders import Contraction, Order, one_of_each
from eindecomp.graph.reduce_types import with_reduce_types
from eindecomp.graph.rewrites.merge_products import Merged, merge_products, merged_products
from eindecomp.graph.rewrites.order_contractions import order_as
from eindecomp.graph.rewrites.rewrite import BEFORE_ORDER, after_order
from eindecomp.graph.windows import apart
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import Arg
from eindecomp.layout.view import view_of
from eindecomp.planner import budgets
from eindecomp.planner.minimize_movement import minimize_movement, search_of
from eindecomp.planner.options import Chosen, Options, Orders, check_countable, unproved
from eindecomp.planner.search.relaxation import relaxed_of
from eindecomp.planner.space.viable import WorkLimit, viable_parts
from eindecomp.solve.clock import has_passed, planning_time, seconds_since
from eindecomp.solve.run import Progress

State = tuple[Order, ...]
"""An order for each contraction."""


def minimize_with_order(graph: Graph, options: Options, work: float | None) -> Chosen:
    """The best plan over all orders of contractions within the limit on work; None keeps the usual.

    `graph` is the graph as written; that of the options is its usual rewritten form.
    """
    if work is None or len(options.graph.vertices) > budgets.ORDERED_VERTICES:
        return minimize_movement(options)
    limit = inf if options.objective == "time" else work
    rules = options.rules
    keep = {*rules.pinned, *rules.tie, *rules.tie.values(), *options.reduce_types}
    pending = options.pending
    contractions = Contractions.of(graph, options.graph, keep, limit, keeps_sums=pending)
    if not contractions.orderings:
        return minimize_movement(options)
    search = _OrderSearch(options, contractions)
    best = search.run()
    bound = min(*search.bounds.values(), best.costs.total)
    if options.solver == "exact" and bound < best.costs.total * (1 - budgets.SUM_ROUNDING):
        raise unproved(best.costs.total, bound)
    return replace(best, bound=bound)


@dataclass
class _OrderSearch:
    """The states that were considered, and the best plan so far."""

    options: Options
    contractions: Contractions
    bounds: dict[State, float] = field(default_factory=dict[State, float])
    """A bound on the cost of every plan of each state that was considered."""
    best: tuple[State, Options, Chosen] | None = None
    first_error: EinDecompError | None = None
    started: float = field(default_factory=planning_time)
    deadline: float = inf

    @property
    def usual(self) -> State:
        """The usual order of every contraction, or the first within the limit."""
        return tuple(ordering.orders[0] for ordering in self.contractions.orderings)

    @property
    def cost(self) -> float:
        """The cost of the best plan so far."""
        return inf if self.best is None else self.best[2].costs.total

    def run(self) -> Chosen:
        """Plan the usual order, then others that may be better."""
        orders, first = self.contractions, self.usual
        several = orders.different > 1
        limit = self.options.time_limit
        # Products that were written as several vertices are planned as written.
        is_merged = any(product.absorbed for product in orders.products.values())
        is_listed = orders.different <= budgets.ORDERS
        is_guessed = several and is_listed and not is_merged
        is_light = len(self.options.graph.vertices) <= budgets.MERGED_VERTICES
        leading = self._leading(first) if is_guessed and is_light else first
        share = budgets.FIRST_ORDER_SHARE if several else 1
        if (1 - share) * limit < budgets.LEAST_BOUND_TIME + budgets.LEAST_SEARCH:
            share = 1  # the rest would be too short for any other
        left = max(share * limit - (planning_time() - self.started), share * limit / 2)
        self._plan(leading, self._options(leading, left))
        now = planning_time()
        least, times = budgets.OTHER_MERGED_ORDERS if is_merged else budgets.OTHER_ORDERS
        left = max(self.started + limit - now, 0.0 if self.best else (1 - share) * limit)
        enough = max(least, times * (now - self.started))
        self.deadline = now + (left if self.best is None else min(left, enough))
        complete = all(ordering.complete for ordering in orders.orderings)
        if several and self.cost > 0:  # nothing costs less than nothing
            complete = complete and is_listed
            if complete:
                complete = self._consider(orders.states())
            else:
                self._consider([first])
                self._descend(first)
        if self.best is None:
            raise self.first_error or PlanError(
                f"no order of contractions could be planned on {self.options.mesh.devices} devices "
                f"within {limit:g} s: give a longer time_limit, or rewrite=False"
            )
        return self._ordered(*self.best, complete)

    def _leading(self, first: State) -> State:
        """What to plan first: the usual order, or the one that stores least if it promises less.

        Where a sum was written as one vertex, the usual order is only a guess, on which a search
        can spend all its time.
        """
        limit = min(budgets.BOUND_TIME, budgets.LOOK_SHARE * self.options.time_limit)
        least = self.contractions.states()[0]
        asked = [self._options(state, limit) for state in (first, least)]
        usual, other = (
            inf if each is None else relaxed_of(search_of(each), limit).bound for each in asked
        )
        return least if other < usual else first

    def _ordered(self, state: State, options: Options, chosen: Chosen, complete: bool) -> Chosen:
        """The best plan, chosen among the orders about which no less is known than about its own.

        An order that could not be bounded as well in the time there is does not count.
        """
        own = self.bounds[state]
        kept = {other: bound for other, bound in self.bounds.items() if bound >= own}
        complete = complete and len(kept) == len(self.bounds)
        self.bounds = kept
        # As far as files can count.
        every = min(prod(each.count for each in self.contractions.orderings), 2**53)
        count = every if complete else len(kept)
        limit = options.restriction
        most: Mapping[str, float] = limit.most if isinstance(limit, WorkLimit) else {}
        return replace(chosen, orders=Orders(count, complete, most))

    def _consider(self, states: Iterable[State]) -> bool:
        """Plan the states whose bound is below the best cost, from the lowest bound up.

        Bounds take half of the time that is left, then some states are planned, and so on. Returns
        whether there was time for all; those for which there was none do not count.
        """
        limit = self.options.time_limit
        waiting = [state for state in states if state not in self.bounds]
        while waiting and self.cost > 0:
            until = (planning_time() + self.deadline) / 2
            bounded: list[tuple[float, State, Options]] = []
            count = 0
            for state in waiting:
                left = self.deadline - planning_time()
                # Without any plan, go on.
                least = min(budgets.LEAST_BOUND_TIME, budgets.LEAST_BOUND_SHARE * limit)
                scarce = left < (0 if self.best is None else least)
                if scarce or (count and has_passed(until)):
                    break
                options = self._options(state, max(left, budgets.BOUND_TIME))
                if options is not None:
                    self.bounds[state] = relaxed_of(
                        search_of(options), budgets.ORDER_BOUND_SHARE * options.time_limit
                    ).bound
                    bounded.append((self.bounds[state], state, options))
                count += 1
            waiting = waiting[count:]
            if not count or not self._plan_promising(bounded):
                return False
        return True

    def _plan_promising(self, bounded: Sequence[tuple[float, State, Options]]) -> bool:
        """Plan states that have a bound from the lowest up; whether there was time for all."""
        complete = True
        for k, (bound, state, options) in enumerate(sorted(bounded, key=lambda each: each[0])):
            left = self.deadline - planning_time()
            if not self._may_be_better(state, bound):
                continue
            if left <= 0:
                del self.bounds[state]
                complete = False
                continue
            if self.options.on_event is not None:
                stage, lowest = f"order {k + 1} of {len(bounded)}", min(self.bounds.values())
                seconds = seconds_since(self.started)
                self.options.on_event(Progress(seconds, stage, self.cost, lowest))
            self._plan(state, replace(options, time_limit=max(left / 2, min(left, 1.0))))
        return complete

    def _descend(self, state: State) -> None:
        """Change the order of one contraction at a time, in all that are alike, while it helps."""
        orderings = self.contractions.orderings
        alike: dict[object, list[int]] = {}
        for k, ordering in enumerate(orderings):
            alike.setdefault(ordering.key, []).append(k)
        before = inf
        while self.cost < before and not has_passed(self.deadline):
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
        """Whether a plan that costs this would be chosen; on a tie, that of the usual order is."""
        if self.best is None:
            return True
        margin = budgets.SUM_ROUNDING * abs(self.cost)
        return bound < self.cost + (margin if state == self.usual else -margin)

    def _options(self, state: State, time_limit: float) -> Options | None:
        """What is asked of one state; None if it cannot be cut within the limit on work."""
        named = zip(self.contractions.orderings, state, strict=True)
        graph, most = self.contractions.ordered({own.name: order for own, order in named})
        exact, asked = self.options.solver == "exact", self.options
        if graph is not asked.graph:
            graph = with_reduce_types(graph, asked.reduce_types, asked.rules.tie)
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
            chosen = minimize_movement(options, tells_least=self.first_error is None)
        except (PlanError, InfeasibleError) as error:
            self.first_error = self.first_error or error
            return
        self.bounds[state] = max(self.bounds.get(state, 0), chosen.bound)
        if self._may_be_better(state, chosen.costs.total):
            self.best = state, options, chosen


@dataclass(frozen=True)
class Ordering:
    """One contraction of a graph: how it is written, and the orders that it may take."""

    name: str
    contraction: Contraction
    written: Order
    """The usual order: as the user wrote it, or of the fewest operations."""
    limit: float
    """The most operations that an order may take."""
    orders: tuple[Order, ...]
    """Of orders that differ only by equal operands, one: the usual one first, if it is within the
    limit, then those that store the least between operands and result."""
    count: int
    """How many orders there are, with those that differ only by equal operands."""
    complete: bool
    """Whether these are all orders within the limit."""

    @property
    def key(self) -> Hashable:
        """What contractions that are alike have in common."""
        numbers: dict[str, int] = {}
        own = self.contraction
        labels = [[numbers.setdefault(x, len(numbers)) for x in each] for each in own.inputs]
        sizes = tuple(own.sizes[label] for label in numbers)
        output = tuple(numbers.get(label, label) for label in own.output)
        return tuple(map(tuple, labels)), output, sizes, own.paired, self.written

    def limits(self, order: Order) -> dict[int, float]:
        """The most operations of each fused vertex, which may repeat some, within the limit.

        What other vertices leave is divided among them in proportion to the least that they take.
        """
        if self.limit == inf:
            return {}
        operations = self.contraction.operations(order)
        fused = {m: n for m, n in operations.items() if self.contraction.repeats(order, m)}
        if not fused or not (least := sum(fused.values())):
            return {}
        left = self.limit - (sum(operations.values()) - least)
        return {mask: own * left / least for mask, own in fused.items()}


@dataclass(frozen=True)
class Contractions:
    """All contractions of a graph whose order can be chosen."""

    written: Graph
    """The graph that the usual orders make."""
    prepared: Graph
    products: Mapping[str, Merged]
    orderings: tuple[Ordering, ...]
    keeps_sums: bool = False

    @classmethod
    def of(
        cls,
        graph: Graph,
        written: Graph,
        keep: Collection[str],
        work: float,
        *,
        keeps_sums: bool = False,
    ) -> Contractions:
        """What a graph contracts, within a limit on work; `keep` are tensors with an own home."""
        small = len(graph.vertices) - len(graph.inputs) <= budgets.MERGED_VERTICES
        has_products = any(
            isinstance(v.op, EinSum) and v.op.agg is not None and len(v.inputs) > 2
            for v in graph.vertices.values()
        )
        if not small and not has_products:
            return cls(written, graph, {}, ())
        prepared = apart(graph)
        for run in BEFORE_ORDER:
            prepared = run(prepared)
        products = merged_products(prepared, keep if small else prepared.vertices)
        orderings = (_ordering(name, own, prepared, keep, work) for name, own in products.items())
        return cls(written, prepared, products, tuple(orderings), keeps_sums)

    @property
    def different(self) -> int:
        """The number of combinations of orders; those that equal operands exchange count once."""
        return prod(len(ordering.orders) for ordering in self.orderings)

    def states(self) -> list[State]:
        """All combinations of orders, those that store the least first."""

        def stored(state: State) -> int:
            named = zip(self.orderings, state, strict=True)
            return sum(ordering.contraction.stored(order) for ordering, order in named)

        return sorted(product(*(ordering.orders for ordering in self.orderings)), key=stored)

    def ordered(self, orders: Mapping[str, Order]) -> tuple[Graph, dict[str, float]]:
        """The graph that orders make, and the most operations of its fused vertices."""
        changed = {o.name: o for o in self.orderings if orders[o.name] != o.written}
        if not changed:
            return self.written, {}
        merged = merge_products(self.prepared, {name: self.products[name] for name in changed})
        graph, made = order_as(merged, {name: orders[name] for name in changed})
        graph = after_order(graph, keeps_sums=self.keeps_sums)
        most: dict[str, float] = {}
        for name, ordering in changed.items():
            limits = ordering.limits(orders[name])
            masks = sorted(orders[name], key=lambda mask: (mask.bit_count(), mask))
            named = zip(masks, made[name], strict=True)
            most |= {vertex: limits[mask] for mask, vertex in named if mask in limits}
        return graph, {name: limit for name, limit in most.items() if name in graph}


def _ordering(
    name: str, merged: Merged, graph: Graph, keep: Collection[str], work: float
) -> Ordering:
    chain = merged.chain
    sizes = graph[name].sizes
    for factor in chain.factors:
        sizes |= graph[factor.name].sizes_by(factor.labels)
    is_plain = all(factor.map == Arg(0) for factor in chain.factors)
    contraction = Contraction(
        tuple(factor.labels for factor in chain.factors),
        chain.output,
        sizes,
        paired=is_plain and chain.join == "mul" and chain.agg == SUM,
    )
    limit = inf if work == inf else work * contraction.least  # which may be 0
    listed = contraction.within(limit, budgets.ORDERS)
    complete = listed is not None
    if listed is None:
        every = contraction.opt_einsum_orders
        listed = [order for order in every if contraction.work(order) <= limit]
        listed += [near for order in listed for near in contraction.near(order, limit)]
    ranked = sorted(
        dict.fromkeys(listed),
        key=lambda order: (
            order != merged.written,
            contraction.stored(order),
            contraction.work(order),
            sorted(order),
        ),
    )
    reads = graph.reads()
    # Inputs of one type that nothing else reads may change places.
    kinds: list[Hashable] = []
    for k, factor in enumerate(chain.factors):
        vertex = graph[factor.name]
        alone = isinstance(vertex.op, Input) and reads[vertex.name] == 1
        kinds.append(vertex.dtype if alone and vertex.name not in keep else k)
    fixed = reads[name] > 0 or name in keep
    alike = contraction.symmetries(kinds, fixed) if is_plain and complete else []
    return Ordering(
        name, contraction, merged.written, limit,
        tuple(one_of_each(ranked, alike)), len(ranked), complete,
    )  # fmt: skip

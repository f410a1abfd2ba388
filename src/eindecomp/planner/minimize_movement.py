"""Plans for objectives "bytes" and "time": mesh axes for every vertex, a home for every result."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from eindecomp.errors import PlanError, UnsolvedError
from eindecomp.layout.view import planned_views
from eindecomp.planner import budgets
from eindecomp.planner.costs.cost import decided_cost
from eindecomp.planner.costs.least_prices import LeastSeconds
from eindecomp.planner.costs.objectives import may_repeat, price_of
from eindecomp.planner.costs.seconds import PriceInSeconds
from eindecomp.planner.model.memory_limit import check_memory
from eindecomp.planner.options import Chosen, unproved
from eindecomp.planner.search.blocks import with_equal_layers
from eindecomp.planner.search.choose import choose
from eindecomp.planner.search.from_strategies import (
    start_from_strategies,
    try_named_strategies,
    within_memory,
)
from eindecomp.planner.search.relaxation import Relaxed, relax
from eindecomp.planner.search.search import Search, is_enough, is_open
from eindecomp.planner.space.choices import parts_by_label
from eindecomp.solve.clock import planning_time

if TYPE_CHECKING:
    from eindecomp.planner.costs.price import Price
    from eindecomp.planner.options import Options
    from eindecomp.planner.search.search import Outcome


def minimize_movement(options: Options) -> Chosen:
    """Choose axes, homes and second layouts within the time limit."""
    if options.solver in ("tree", "linear"):
        raise PlanError(f"solver {options.solver!r} is only for objective 'bound'")
    started = planning_time()
    graph, mesh = options.graph, options.mesh
    price = price_of(options.objective, mesh, options.machine)
    search = Search(
        graph, price, options.rules, options.restriction,
        redundant=may_repeat(options.objective), loose=options.loose, memory=options.memory,
        close=_close(options, price), started=started, on_event=options.on_event,
    )  # fmt: skip
    if options.memory is not None:
        check_memory(graph, options.rules, mesh, options.memory)
    search.tell("relax")
    relaxed = _relaxed(options, price)
    deadline = started + options.time_limit
    first: Outcome | None = None
    if options.rules.tie and len(graph.vertices) > budgets.SMALL_GRAPH:
        first = start_from_strategies(search, relaxed.bound, deadline)
    try:
        outcome = _chosen(search, relaxed, first, deadline)
    except UnsolvedError as error:
        raise PlanError(f"no plan found in {options.time_limit:g} s: {error}") from None
    may_improve = options.restriction is None and is_open(outcome.cost, outcome.bound)
    if may_improve and first is None:
        outcome = try_named_strategies(search, outcome, deadline)
    decisions = {name: outcome.decisions[name] for name, _ in planned_views(graph)}
    costs = decided_cost(graph, price, decisions, outcome.given)
    if options.solver == "exact" and outcome.bound < costs.total * (1 - budgets.ROUNDING):
        raise unproved(costs.total, outcome.bound)
    views = dict(planned_views(graph))
    parts = {
        name: parts_by_label(views[name], mesh, decision) for name, decision in decisions.items()
    }
    return Chosen(parts, decisions, outcome.given, costs, outcome.bound, outcome.method)


def _close(options: Options, price: Price) -> float:
    """How far above the bound a plan may be that ends the search.

    On several levels of links, the bound does not know how axes nest and is seldom met. Nor is it
    where messages have curves, of which it takes a line below.
    """
    has_curves = isinstance(price, PriceInSeconds) and bool(price.machine.transfers)
    is_loose = _has_levels(price) or has_curves
    return budgets.CLOSE if options.solver != "exact" and is_loose else 0.0


def _has_levels(price: Price) -> bool:
    return isinstance(price, PriceInSeconds) and len(LeastSeconds(price).levels) > 1


def _chosen(search: Search, relaxed: Relaxed, first: Outcome | None, deadline: float) -> Outcome:
    """The best choice of axes that is found in time, or the first one if that is better."""
    left = deadline - planning_time()
    if first is None:
        part = (
            budgets.SEARCH_SHARE
            if search.choosers <= budgets.SMALL_GRAPH
            else budgets.SEARCH_LAYERS_SHARE
        )
        part = part if search.restriction is None else 1.0
        tied = bool(search.rules.tie) and search.choosers > budgets.LARGE_GRAPH
        search = with_equal_layers(search) if tied else search
        return choose(search, relaxed, max(part * left, 1.0))
    if is_enough(search, first.cost, first.bound) or left < budgets.LEAST_SEARCH:
        return first
    if search.choosers > budgets.LARGE_GRAPH:
        return replace(first, bound=relaxed.tightened(first.cost, deadline).bound)
    with suppress(UnsolvedError, PlanError):
        # A bound without the memory limit is one with it, and is found sooner.
        other = choose(replace(search, memory=None), relaxed, left)
        first = replace(first, bound=max(first.bound, other.bound))
        hurried = replace(search, deadline=max(deadline, planning_time() + budgets.LEAST_SEARCH))
        fitting = other if search.memory is None else within_memory(hurried, other)
        if fitting is not None and fitting.rank < first.rank:
            return replace(fitting, bound=first.bound)
    return first


def relaxed_bound(options: Options) -> float:
    """A lower bound on the cost of every plan, found quickly."""
    return _relaxed(options, price_of(options.objective, options.mesh, options.machine)).bound


def _relaxed(options: Options, price: Price) -> Relaxed:
    """A lower bound on every plan, and numbers of pieces to begin with, where there are any."""
    seconds = LeastSeconds(price) if isinstance(price, PriceInSeconds) else None
    if seconds is None and options.objective != "bytes":
        return Relaxed(0)
    limit = (
        budgets.RELAX_LEVELS_SHARE if _has_levels(price) else budgets.RELAX_SHARE
    ) * options.time_limit
    relaxed = relax(
        options.graph, options.mesh, options.rules, options.vectors, limit,
        price=seconds, restriction=options.restriction, memory=options.memory,
    )  # fmt: skip
    if isinstance(price, PriceInSeconds):
        return replace(relaxed, bound=max(relaxed.bound, _least_compute(options, price)))
    return relaxed


def _least_compute(options: Options, price: PriceInSeconds) -> float:
    """The least seconds that computing can take, however vertices are cut."""
    graph, total = options.graph, 0.0
    for name, view in planned_views(graph):
        vertex = graph[name]
        items = tuple(graph[source].dtype.itemsize for source in vertex.inputs)
        total += price.least(vertex, view, items)
    return total * (1 - budgets.SUM_ROUNDING)

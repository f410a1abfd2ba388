"""Plans for objectives "bytes" and "time": mesh axes for every vertex, a home for every result."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from eindecomp.errors import PlanError, UnsolvedError
from eindecomp.planner.costs.cost import decided_cost
from eindecomp.planner.costs.objectives import may_repeat, price_of
from eindecomp.planner.costs.seconds import PriceInSeconds
from eindecomp.planner.plan import Chosen, unproved
from eindecomp.planner.search.choose import choose
from eindecomp.planner.search.relaxation import Relaxed, relax
from eindecomp.planner.search.search import Search
from eindecomp.planner.space.decision import parts_by_label
from eindecomp.planner.space.strategy import applicable, strategy_of
from eindecomp.planner.space.view import planned_views

if TYPE_CHECKING:
    from eindecomp.planner.costs.price import Price
    from eindecomp.planner.options import Options
    from eindecomp.planner.search.search import Outcome

_LEAST_TIME = 0.1  # seconds that another search needs at least
_ROUNDING = 1e-9


def minimize_movement(options: Options) -> Chosen:
    """Choose axes, homes and second layouts within the time limit."""
    if options.solver in ("tree", "linear"):
        raise PlanError(f"solver {options.solver!r} is only for objective 'bound'")
    started = monotonic()
    graph, mesh = options.graph, options.mesh
    price = price_of(options.objective, mesh, options.machine)
    search = Search(
        graph, price, options.inputs, options.pinned, options.restriction,
        redundant=may_repeat(options.objective), loose=options.loose, memory=options.memory,
        started=started, on_event=options.on_event,
    )  # fmt: skip
    search.tell("relax")
    relaxed = _relaxed(options, price)
    left = max(options.time_limit - (monotonic() - started), 1.0)
    try:
        outcome = choose(search, relaxed, left)
    except UnsolvedError as error:
        raise PlanError(f"no plan found in {options.time_limit:g} s: {error}") from None
    if options.restriction is None and outcome.bound < outcome.cost * (1 - _ROUNDING):
        outcome = _try_named_strategies(search, outcome, started + options.time_limit)
    costs = decided_cost(graph, price, outcome.decisions, outcome.given, options.inputs)
    if options.solver == "exact" and outcome.bound < costs.total * (1 - _ROUNDING):
        raise unproved(costs.total, outcome.bound)
    views = dict(planned_views(graph))
    parts = {
        name: parts_by_label(views[name], mesh, decision)
        for name, decision in outcome.decisions.items()
    }
    return Chosen(parts, outcome.decisions, outcome.given, costs, outcome.bound, outcome.method)


def _relaxed(options: Options, price: Price) -> Relaxed:
    """A lower bound on every plan, and numbers of pieces to begin with, where there are any."""
    if isinstance(price, PriceInSeconds):
        return Relaxed(_least_compute(options, price))
    if options.objective != "bytes":
        return Relaxed(0)
    inputs = "free" if options.pinned else options.inputs
    return relax(options.graph, options.mesh, inputs, options.vectors, options.time_limit / 2)


def _try_named_strategies(search: Search, outcome: Outcome, deadline: float) -> Outcome:
    """The better of an outcome that is not proved optimal and what named strategies lead to.

    A strategy restricts every vertex, so that a search under it looks elsewhere; what it finds is a
    plan like any other.
    """
    best = outcome
    named = applicable(search.graph)
    for number, (name, strategy) in enumerate(named.items()):
        left = (deadline - monotonic()) / (len(named) - number)
        if left < _LEAST_TIME or best.cost <= outcome.bound:
            break
        search.tell(name, best.cost)
        restricted = replace(search, restriction=strategy_of(strategy, search.graph))
        with suppress(UnsolvedError, PlanError):
            other = choose(restricted, Relaxed(outcome.bound), left)
            if other.rank < best.rank:
                best = replace(other, bound=outcome.bound)
    return best


def _least_compute(options: Options, price: PriceInSeconds) -> float:
    """The least seconds that computing can take, however vertices are cut."""
    graph, total = options.graph, 0.0
    for name, view in planned_views(graph):
        vertex = graph[name]
        items = tuple(graph[source].dtype.itemsize for source in vertex.inputs)
        total += price.least(vertex, view, items)
    return total * (1 - _ROUNDING)

"""Plans for objectives "bytes" and "time": mesh axes for every vertex, a home for every result.

Where one elimination cannot choose all axes, the search begins with one axis at a time, and with
what named strategies lead to: they leave little to choose, so that pieces are found soon.
State couples the beginning of a step with its end, which a search from nothing has to consider at
once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from math import inf

from eindecomp.errors import PlanError, UnsolvedError
from eindecomp.graph.ops import Input
from eindecomp.graph.turns import in_turns, turn_bytes
from eindecomp.graph.vertex import Vertex
from eindecomp.layout.view import View, planned_views
from eindecomp.planner import budgets
from eindecomp.planner.costs.cost import decided_cost
from eindecomp.planner.costs.least_prices import LeastSeconds
from eindecomp.planner.costs.price import (
    Price,
    PriceInBytes,
    PriceInSeconds,
    may_repeat,
    price_of,
)
from eindecomp.planner.model.memory_limit import held_at_least
from eindecomp.planner.options import Chosen, Options, unproved
from eindecomp.planner.search.blocks import (
    any_plan,
    choose_by_blocks,
    improve_layers,
    with_equal_layers,
)
from eindecomp.planner.search.choose import choose, is_small
from eindecomp.planner.search.follow import assemble, combine, follow
from eindecomp.planner.search.relaxation import Relaxed, prices_of, relaxed_of
from eindecomp.planner.search.search import (
    Outcome,
    Search,
    better,
    found_without_parts,
    is_enough,
    is_open,
    part_of_time,
    solve,
    without_parts,
)
from eindecomp.planner.search.smallest_plan import (
    fitting_plan,
    refuse_too_little,
    within_memory,
)
from eindecomp.planner.space.choices import Choices, outward, parts_by_label
from eindecomp.planner.space.pending import waiting_of
from eindecomp.planner.space.pin import choices_reaching
from eindecomp.planner.space.strategy import (
    AnyStrategy,
    GivenStrategy,
    Strategy,
    applicable,
    common_labels,
    inside_servers,
    rules_under,
    strategy_of,
)
from eindecomp.solve.clock import has_passed, planning_time


def minimize_movement(options: Options, *, tells_least: bool = True) -> Chosen:
    """Choose axes, homes and second layouts within the time limit.

    Where no plan fits into memory, the error `tells_least`: the least memory found.
    """
    if options.solver in ("tree", "linear"):
        raise PlanError(f"solver {options.solver!r} is only for objective 'bound'")
    search = search_of(options)
    graph, mesh, price = search.graph, search.mesh, search.price
    each = budgets.ENDING_SECONDS[isinstance(price, PriceInSeconds)]
    ending = min(each * len(graph.vertices), options.time_limit / 2)
    deadline = search.started + options.time_limit - ending
    tells_least = tells_least and options.is_last
    refuse_too_little(search, deadline, tells_least=tells_least)
    starts = Starts(search)
    try:
        outcome = _found(starts, deadline)
    except (UnsolvedError, PlanError) as error:
        found = None
        if isinstance(error, UnsolvedError):
            if options.memory is None:
                with suppress(UnsolvedError, PlanError):
                    found = any_plan(replace(search, deadline=inf))
            error = PlanError(f"no plan found in {options.time_limit:g} s: {error}")
        if found is None and (options.memory is None or not tells_least):
            raise error from None
        found = fitting_plan(search, error, deadline) if found is None else found
        outcome = replace(found, bound=starts.relaxed.bound)
    if options.restriction is None and is_open(outcome.cost, outcome.bound):
        outcome = _improve_strategies(search, outcome, starts, deadline)
    views = dict(planned_views(graph))
    decisions = {
        name: outward(search.rules.view_of(graph, graph[name]), outcome.decisions[name])
        for name in views
    }
    costs = decided_cost(graph, price, decisions, outcome.given)
    if options.solver == "exact" and outcome.bound < costs.total * (1 - budgets.ROUNDING):
        raise unproved(costs.total, outcome.bound)
    parts = {name: parts_by_label(view, mesh, decisions[name]) for name, view in views.items()}
    given, bound, method = outcome.given, outcome.bound, outcome.method
    pending = bool(search.rules.waiting)
    return Chosen(graph, parts, decisions, given, costs, bound, method, pending=pending)


def _found(starts: Starts, deadline: float) -> Outcome:
    """The best plan that is found in time, from what the relaxed problem and strategies lead to."""
    search = starts.search
    if search.memory is not None and has_passed(deadline):
        raise UnsolvedError("time is up")
    if search.mesh.devices == 1 and search.memory is None:
        only = any_plan(search)
        return replace(only, bound=only.cost)
    search.tell("relax")
    # In seconds, pieces take longer to find than what they would lead to.
    if search.restriction is None or isinstance(search.price, PriceInSeconds):
        starts.begin(deadline)
    prices = prices_of(search) if _UNLIMITED in starts.plans else None  # no limit is felt
    if prices is not None:
        relaxed = Relaxed(max(prices.bound, 0), prices=prices)
    else:
        relaxed = relaxed_of(search, _relax_seconds(search, deadline))
    starts.relaxed = relaxed
    if not (starts.plans or relaxed.pieces or search.restriction is None):
        starts.begin(deadline)
    first: Outcome | None = None
    is_large = len(search.graph.vertices) > budgets.SMALL_GRAPH
    if search.rules.tie and search.memory is not None and is_large:
        until = part_of_time(deadline, budgets.BOUND_FIRST_SHARE)
        relaxed = starts.relaxed = relaxed.tightened(inf, until)
        first = start_from_strategies(search, relaxed.bound, deadline, starts.plans.values())
    return _chosen(search, relaxed, first, starts, deadline)


def _relax_seconds(search: Search, deadline: float) -> float:
    """What the relaxed problem may take of the time limit, and of what first starts have left."""
    share, of_left = budgets.RELAX_SHARES
    if isinstance(search.price, PriceInSeconds) and len(search.price.levels) > 1:
        share, of_left = budgets.RELAX_LEVELS_SHARES
    limit = deadline - search.started
    least = min(budgets.LEAST_RELAX_SECONDS, limit / 4)
    return max(min(share * limit, of_left * (deadline - planning_time())), least)


def search_of(options: Options) -> Search:
    """The search for what is asked of a plan."""
    price = price_of(options.objective, options.mesh, options.machine)
    graph, rules = options.graph, options.rules
    if options.pending:
        kept = {v.name for v in graph.outputs} | {*rules.tie.values(), *rules.pinned}
        work = inf if options.objective == "time" else options.work or 1.0
        waiting = waiting_of(graph, kept, options.mesh, work)
        rules = replace(rules, waiting=waiting)
    if options.memory is not None:
        graph, turns = in_turns(graph)
        most = turn_bytes(graph, turns, options.mesh.devices)
        rules = replace(rules, turns=turns, turn_bytes=most)
    return Search(
        graph, price, rules, options.restriction,
        redundant=may_repeat(options.objective), loose=options.loose, memory=options.memory,
        close=budgets.CLOSE if options.solver != "exact" and _is_seldom_met(price) else 0.0,
        started=planning_time(), on_event=options.on_event,
    )  # fmt: skip


def held_by_every_plan(options: Options) -> int:
    """The bytes that the fullest device holds, whatever is chosen."""
    search = search_of(options)
    return held_at_least(search.graph, search.rules, search.mesh)


def _is_seldom_met(price: Price) -> bool:
    """Whether plans seldom cost as little as the bound, so that one close to it ends the search.

    On several levels of links, the bound does not know how axes nest. Where messages have curves,
    it takes a line below them.
    """
    if not isinstance(price, PriceInSeconds):
        return False
    return len(LeastSeconds(price).levels) > 1 or bool(price.machine.transfers)


def _chosen(
    search: Search,
    relaxed: Relaxed,
    first: Outcome | None,
    starts: Starts,
    deadline: float,
) -> Outcome:
    """The best choice of axes that is found in time, or the first one if that is better."""
    left = deadline - planning_time()
    if first is None:
        is_large = search.restriction is None and not is_small(replace(search, any_order=True))
        part = budgets.SEARCH_SHARE if is_large else 1.0
        tied = bool(search.rules.tie) and search.choosers > budgets.LARGE_GRAPH
        search = with_equal_layers(search) if tied else search
        left = part * left if starts.plans else max(part * left, budgets.LEAST_SEARCH)
        return choose(search, relaxed, left, starts.found, starts.plans.values())
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


_AXES, _COMBINED, _UNLIMITED = "", "combined", "without a limit on memory"
_FIRST, _WHOLE, _TOGETHER = "first", "without parts", "together"
"""The names of plans that no other strategy leads to."""


@dataclass
class Starts:
    """Plans to begin with: what pins imply, and what named strategies lead to."""

    search: Search
    relaxed: Relaxed = field(default_factory=lambda: Relaxed(0))
    plans: dict[str, Outcome] = field(default_factory=dict[str, Outcome])

    @cached_property
    def named(self) -> dict[str, Search]:
        """The search under each strategy that applies, or under the one asked for."""
        search = self.search
        return _restricted(search) if search.restriction is None else {"": search}

    def begin(self, deadline: float) -> None:
        """Find a plan one axis at a time, those of the first strategies, and what these lead to.

        The first takes about a second on any number of devices, and is better than most strategies,
        which only restrict it. The relaxed problem may take long, in seconds longer than all that.
        """
        search = replace(self.search, deadline=deadline)
        if is_small(search):
            return
        is_limited = search.memory is not None
        is_free = search.restriction is None and not search.rules.pinned and not search.loose
        if is_free and is_limited:
            self.plans |= self._fitting({_UNLIMITED: search})
        self._assemble(_FIRST, search, [search])  # before anything is searched
        if not (is_limited and self.plans):
            self._choose_axes(search)
        if is_free:
            is_plain = isinstance(search.price, PriceInBytes)
            if not (is_plain and _AXES in self.plans):  # in bytes, axes lead further by themselves
                self._assemble(_TOGETHER, search, self.named.values())
            first = dict(islice(self.named.items(), budgets.FIRST_STARTS if is_plain else None))
            until = part_of_time(deadline, budgets.FIRST_STARTS_SHARE)
            own = {name: replace(each, deadline=until) for name, each in first.items()}
            self.plans |= self._fitting(own) if is_limited else _starts(own, until, needed=False)
        if self.plans and not is_limited and not search.loose:
            hurried = search.hurried(budgets.FIRST_COMBINED_SHARES[1])
            names = {min(self.plans, key=lambda n: self.plans[n].rank), _AXES} & self.plans.keys()
            for plan in combine(hurried, (search.mesh.sizes,), [self.plans[n] for n in names], 0):
                self.plans[_COMBINED] = better(self.plans.get(_COMBINED), plan)

    def _choose_axes(self, search: Search) -> None:
        """Plans, one axis at a time: in seconds, first one in which no result stays in parts."""
        began, is_timed = planning_time(), isinstance(search.price, PriceInSeconds)
        late = max(search.deadline, began + (0 if is_timed else budgets.FIRST_AXES_SECONDS))
        late = search.hurried(budgets.LIMITED_AXES_SHARE).deadline if search.memory else late
        search = replace(search, deadline=late)
        with suppress(UnsolvedError, PlanError):
            if is_timed and search.memory is None:
                plans = [choose_by_blocks(whole := without_parts(search), (1,), needed=False)]
                spent = planning_time() - began
                hurried = whole.hurried(budgets.FIRST_COMBINED_SHARES[0])
                plans += combine(hurried, (search.mesh.sizes,), plans, 0)
                self.plans[_WHOLE] = found_without_parts(search, plans[-1])
                if has_passed(search.deadline - budgets.TIMES_WHOLE * spent):
                    return
            plan = choose_by_blocks(search, (1,), needed=False)
            self.plans[_AXES] = replace(plan, bound=0)

    def _assemble(self, name: str, search: Search, others: Iterable[Search]) -> None:
        """The best of the plans so far and of what other searches begin with."""
        if search.memory is None and not search.loose:
            with suppress(UnsolvedError, PlanError):
                plan = assemble(search, self.plans.values(), others)
                self.plans |= {} if plan is None else {name: plan}

    def _fitting(self, named: Mapping[str, Search]) -> Iterator[tuple[str, Outcome]]:
        """What is found without the limit on memory, which takes far less time, made to fit."""
        until = min(search.deadline for search in named.values())
        free = {name: replace(search, memory=None) for name, search in named.items()}
        least = min((plan.cost for plan in self.plans.values()), default=inf)
        for name, plan in _starts(free, until, needed=False, least=least):
            fitting = within_memory(replace(self.search, deadline=until), plan)
            if fitting is not None:
                yield name, replace(fitting, bound=0)

    def found(self, deadline: float) -> Iterable[Outcome]:
        """All those that are found in a part of the time."""
        search = self.search
        pinned = _start_from_pins(search)
        if pinned is not None:
            self.plans["pins"] = pinned
        if pinned is None or is_open(pinned.cost, self.relaxed.bound):
            until = part_of_time(deadline, budgets.STARTS_SHARE)
            needed = search.memory is not None or bool(search.loose)
            others = {name: own for name, own in self.named.items() if name not in self.plans}
            relaxes = search.restriction is None or not isinstance(search.price, PriceInBytes)
            self.plans |= _starts(others, until, needed=needed, relaxes=relaxes)
        return self.plans.values()


def _improve_strategies(
    search: Search,
    outcome: Outcome,
    starts: Starts,
    deadline: float,
) -> Outcome:
    """The better of an outcome that is not proved optimal and what searches under strategies find.

    A strategy restricts every vertex, so that a search under it looks elsewhere; what it finds is a
    plan like any other.
    """
    best = outcome
    for name, plan in sorted(starts.plans.items(), key=lambda each: each[1].rank):
        left = part_of_time(deadline, budgets.STRATEGY_SHARE) - planning_time()
        if is_enough(search, best.cost, best.bound) or left < budgets.STRATEGY_SECONDS:
            break
        search.tell(name, best.cost)
        with suppress(UnsolvedError, PlanError):
            named = starts.named.get(name, search)
            other = choose(named, Relaxed(outcome.bound), left, known=[plan])
            best = min(best, replace(other, bound=outcome.bound), key=lambda each: each.rank)
    return best


def start_from_strategies(
    search: Search, bound: float, deadline: float, known: Collection[Outcome] = ()
) -> Outcome | None:
    """The best plan that improving a named strategy, or the one asked for, leads to in time.

    It is improved from the best plan that is `known`, if that is not far above the bound. With a
    memory limit, plans are sought without it first and then made to fit.
    """
    search = with_equal_layers(replace(search, bound=bound, deadline=deadline))
    free = replace(search, memory=None)
    found = list(known)
    if min((plan.cost for plan in found), default=inf) > bound * (1 + budgets.FAR_FROM_BOUND):
        named = {"": free} if search.restriction is not None else _restricted(free, ("sqrt",))
        found += dict(_starts(named, part_of_time(deadline, budgets.STARTS_SHARE))).values()
    starts = sorted(found, key=lambda each: each.rank)
    if not starts:
        return None
    hurried = replace(free, deadline=part_of_time(deadline, budgets.FITTING_SHARE))
    best = improve_layers(hurried, starts[0], bound)
    if search.memory is not None:
        best = _cheapest(search, [best, *starts], part_of_time(deadline, budgets.STRATEGY_SHARE))
    return None if best is None else replace(improve_layers(search, best, bound), bound=bound)


def _cheapest(search: Search, plans: Iterable[Outcome], deadline: float) -> Outcome | None:
    """The best of the plans, made to fit into memory; None if none of them does."""
    best: Outcome | None = None
    for plan in sorted(plans, key=lambda each: each.rank):
        if best is not None and best.cost <= plan.cost:
            break
        late = max(deadline, planning_time() + budgets.FIRST_PLAN_GRACE)
        fitting = within_memory(replace(search, alike={}, deadline=late), plan)
        if fitting is not None and (best is None or fitting.rank < best.rank):
            best = fitting
    return best


def _starts(
    named: Mapping[str, Search],
    deadline: float,
    *,
    needed: bool = True,
    relaxes: bool = True,
    least: float = inf,
) -> Iterator[tuple[str, Outcome]]:
    """What strategies lead to while there is time; one of them in any case if that is needed.

    `relaxes` says whether relaxed problems are solved for that, which others may have done before;
    those whose bound is above the `least` cost so far lead to no better plan.
    """
    for name, search in named.items():
        if (least < inf or not needed) and has_passed(deadline):
            break
        search.tell(name, least)
        search = replace(search, deadline=deadline)
        with suppress(UnsolvedError, PlanError):
            plan, is_far = None, False
            if relaxes and search.memory is None:
                left = budgets.START_SHARE * (deadline - planning_time())
                relaxed = relaxed_of(_in_bytes(search), left)
                if isinstance(search.price, PriceInBytes) and relaxed.bound >= least:
                    continue
                plan = follow(search, relaxed) if relaxed.pieces else None
                is_far = plan is not None and plan.cost > relaxed.bound * (1 + budgets.FAR_ABOVE)
            if plan is None or is_far or (name and is_small(search)):
                sizes = (len(search.mesh.sizes), 1) if is_small(search) else (1,)
                is_first = plan is None and least == inf
                with nullcontext() if plan is None else suppress(UnsolvedError, PlanError):
                    other = choose_by_blocks(search, sizes, needed=needed and is_first)
                    plan = better(plan, other)
            assert plan is not None  # noqa: S101 - else an error was raised
            yield name, replace(plan, bound=0)
            least = min(least, plan.cost)


def _in_bytes(search: Search) -> Search:
    """The same search for the fewest bytes: pieces on several levels of links take long to find."""
    return replace(search, price=PriceInBytes(search.mesh), redundant=False)


def _start_from_pins(search: Search) -> Outcome | None:
    """What pins imply where they say where every result lies; None if they do not."""
    pinned = search.rules.pinned
    if any(name not in pinned for name, _ in planned_views(search.graph)):
        return None

    def of(vertex: Vertex, view: View) -> Choices:
        if isinstance(vertex.op, Input):
            return search.every_choice(vertex, view)
        return choices_reaching(view, search.mesh, pinned[vertex.name][0])

    with suppress(UnsolvedError, PlanError):
        return replace(solve(search, of), bound=0)
    return None


def _restricted(search: Search, without: Sequence[str] = ()) -> dict[str, Search]:
    """The search under each named strategy that applies, each distinct one once.

    Those that leave the most to choose come first: they lead to the best plans more often.
    State that is replicated costs no less than state that is cut and gathered once, and would be
    computed by several devices, so that where it lies is left open.
    """
    graph, mesh = search.graph, search.mesh
    everywhere: dict[AnyStrategy, str] = {}
    inside: dict[AnyStrategy, str] = {}
    names = applicable(graph, mesh.devices, without, stateful=bool(search.rules.tie))
    given: dict[str, GivenStrategy] = {**names}
    if names.keys() <= {"sqrt"} and not is_small(search):  # labels have other names here
        given |= {f"along {label}": (label,) for label in common_labels(graph)}
    for name in sorted(given, key="sqrt".__eq__):
        strategy = strategy_of(given[name], graph, mesh.devices)
        if isinstance(strategy, Strategy):
            if strategy.state == "replicated":
                strategy = replace(strategy, state="free")
            if (within := inside_servers(strategy, graph, mesh.devices)) is not None:
                inside.setdefault(within, f"{name} inside servers")
        everywhere.setdefault(strategy, name)
    named: dict[str, Search] = {}
    for strategy, name in (everywhere | inside).items():
        rules = rules_under(strategy, graph, mesh, search.rules)
        named[name] = replace(search, restriction=strategy, rules=rules)
    return named

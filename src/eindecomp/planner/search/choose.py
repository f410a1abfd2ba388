"""`choose`: the stages of a search for axes, tried in the order of `STAGES`.

Each stage finds a better plan or a higher bound, in a share of the time that is left, and the
search ends as soon as a plan costs what the bound says. First come axes that nest in mesh order,
for the numbers of pieces that the relaxed problem has found, then blocks of axes; then axes in any
order, and all of them at once. A plan that meets the bound of the relaxed problem is optimal among
plans with axes in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf

from eindecomp.errors import PlanError, UnsolvedError
from eindecomp.planner import budgets
from eindecomp.planner.model.movement import MovementModel
from eindecomp.planner.search.blocks import (
    block_sizes,
    choose_block,
    choose_by_blocks,
    improve_blocks,
    improve_layers,
    start_from_pieces,
    with_equal_layers,
)
from eindecomp.planner.search.follow import combine, follow
from eindecomp.planner.search.relaxation import Relaxed, relaxed_of
from eindecomp.planner.search.search import (
    Outcome,
    Search,
    all_axes,
    better,
    goal_of,
    is_enough,
    is_open,
    outcome_of,
    part_of_time,
)
from eindecomp.solve.budgets import BUCKET_CELLS
from eindecomp.solve.clock import has_passed, planning_time
from eindecomp.solve.exact.bounding import Bounding


@dataclass(frozen=True, slots=True, eq=False)
class AllAxes:
    """The problem of all axes at once, and what is known of it.

    Numbers of pieces do not say which pieces overlap, and how. Where sizes are uneven, or axes
    differ in size, that is most of what a plan pays. Here every vertex has all its assignments and
    every movement has its true cost; only elimination is relaxed, and the choices found on the way
    are plans.
    """

    model: MovementModel
    bounding: Bounding

    @staticmethod
    def of(search: Search) -> AllAxes | None:
        """None if that is too large, or if memory is limited, which elimination cannot handle.

        Vertices that choose alike have no bound for those that need not.
        """
        if search.memory is not None or search.alike:
            return None
        try:
            model = search.model(search.every_choice)
        except UnsolvedError:
            return None
        bounding = Bounding.begin(model.problem(), search.deadline)
        bounding.run.enter("split")
        return AllAxes(model, bounding)

    def tighten(self, goal: float, deadline: float, levels: int) -> Outcome | None:
        """Raise the bound as far as goal, tables and time allow; the best plan found on the way."""
        self.bounding.tighten(goal, deadline, levels)
        run = self.bounding.run
        return None if run.choice is None else outcome_of(self.model, run.solution(proved=False))


@dataclass
class Choosing:
    """A search under way: the best plan and the bound so far."""

    search: Search
    """Axes nest in mesh order."""
    deadline: float
    """When the search ends; a first plan that fits into memory is looked for less long."""
    relaxed: Relaxed
    first: Callable[[float], Iterable[Outcome]] | None = None
    """What finds plans soon, before a deadline."""
    best: Outcome | None = None
    plans: list[Outcome] = field(default_factory=list[Outcome])
    """All that were found on the way."""
    whole: AllAxes | None = None
    is_too_wide: bool = False
    """Whether all axes together have turned out to be too many for elimination."""
    is_over: bool = False

    @property
    def ordered(self) -> Search:
        """The same space, but axes nest in any order."""
        return replace(self.search, any_order=True)

    @property
    def bound(self) -> float:
        """What no plan undercuts."""
        return self.search.bound

    @property
    def cost(self) -> float:
        """The cost of the best plan."""
        return inf if self.best is None else self.best.cost

    @property
    def is_open(self) -> bool:
        """Whether a plan may cost less than the best one."""
        return not self.is_over and (self.best is None or is_open(self.cost, self.bound))

    @property
    def is_joint(self) -> bool:
        """Whether vertices have few enough assignments for considering all axes at once."""
        return self.ordered.most_ways <= budgets.JOINT_WAYS

    @property
    def has_layers(self) -> bool:
        """Whether there are so many vertices that those of equal layers choose alike first."""
        return self.search.choosers > budgets.SMALL_GRAPH and not self.search.alike

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many axes are chosen together, the largest number first."""
        sizes = block_sizes(self.search)
        return sizes[1:] if self.is_too_wide and len(sizes) > 1 else sizes

    def offer(self, outcome: Outcome | None) -> None:
        """Take a plan if it is cheaper; of equal ones, the first reads and holds the least."""
        if outcome is not None:
            if all(outcome is not each for each in self.plans):
                self.plans.append(outcome)
            if self.best is None:
                self.search = replace(self.search, deadline=self.deadline)
            self.best = outcome if outcome.cost < self.cost else self.best

    def raise_bound(self, bound: float) -> None:
        """Take a bound if it is higher."""
        if bound > self.bound:
            self.search = replace(self.search, bound=bound)


@dataclass(frozen=True, slots=True)
class Stage:
    """One way to choose axes."""

    run: Callable[[Choosing], None]
    applies: Callable[[Choosing], bool]


def choose(
    search: Search,
    relaxed: Relaxed,
    time_limit: float,
    first: Callable[[float], Iterable[Outcome]] | None = None,
    known: Iterable[Outcome] = (),
) -> Outcome:
    """The best choice of axes that is found in time, given what the relaxed problem has shown.

    It is no worse than what `first` finds soon, if anything. If time is up before anything is
    found, it is the best one that was `known` before; `first` gives those again.

    Of plans that cost the same, it is one whose devices read and hold the least, as far as such a
    plan is easily found.
    """
    deadline = planning_time() + time_limit
    share = 1 if search.memory is None else budgets.FIRST_FITTING_SHARE
    first_by = part_of_time(deadline, share)
    search = replace(search, deadline=first_by, bound=relaxed.bound, any_order=False)
    choosing = Choosing(search, deadline, relaxed, first, plans=list(known))
    for stage in STAGES:
        is_late = bool(choosing.plans) and has_passed(deadline)
        if choosing.is_open and not is_late and stage.applies(choosing):
            stage.run(choosing)
    if choosing.best is None:
        choosing.best = min(choosing.plans, key=lambda each: each.rank)  # blocks lead to one
    return replace(choosing.best, bound=choosing.bound)


def _choose_lightest(choosing: Choosing) -> None:
    """The plan that reads and holds the least among the cheapest with axes in mesh order.

    One solution gives it where all axes can be chosen at once, or numbers of pieces were ranked.
    """
    plain = replace(choosing.search.hurried(budgets.LIGHTEST_SHARE), ranks=True)
    if is_small(choosing.search):
        try:
            choosing.offer(choose_block(plain, all_axes(plain), {}))
        except UnsolvedError:
            choosing.is_too_wide = True
    elif choosing.relaxed.is_light:
        choosing.offer(_from_pieces(choosing, plain))


def _from_pieces(choosing: Choosing, search: Search) -> Outcome | None:
    """The plan that the relaxed problem's pieces lead to; None if they lead to none.

    Where layouts follow one another, that takes little time, and a little more if there is no plan.
    """
    if search.memory is not None or search.loose:
        return start_from_pieces(search, choosing.sizes, choosing.relaxed)
    late = search.deadline if choosing.plans else planning_time() + budgets.FIRST_PLAN_GRACE
    return follow(replace(search, deadline=max(search.deadline, late)), choosing.relaxed)


def _choose_whole(choosing: Choosing) -> None:
    """All axes in any order by one elimination, which proves its optimum."""
    ordered = replace(choosing.ordered, ranks=choosing.search.is_ranked)
    with suppress(UnsolvedError):
        outcome = choose_block(ordered, all_axes(ordered), {})
        choosing.best = outcome if ordered.ranks else better(choosing.best, outcome)
        choosing.raise_bound(outcome.bound)
        choosing.is_over = ordered.ranks


def _choose_pieces(choosing: Choosing) -> None:
    """Axes for the relaxed problem's pieces, or for others that cost as much."""
    choosing.relaxed = choosing.relaxed.otherwise(choosing.search.deadline)
    if choosing.search.memory is None or not is_small(choosing.search):
        choosing.offer(_from_pieces(choosing, choosing.search))
    is_found = choosing.best is not None
    choosing.is_over = is_found and is_enough(choosing.search, choosing.cost, choosing.bound)


def _begin(choosing: Choosing) -> None:
    """What strategies and pins lead to soon, and what all that can be combined to.

    What is known before goes first, in case that time is short.
    """
    search = choosing.search
    if choosing.plans:
        choosing.offer(min(choosing.plans, key=lambda each: each.rank))
        _combine(choosing)
    if choosing.first is not None and choosing.is_open:
        for plan in choosing.first(search.deadline):
            choosing.offer(plan)
    _combine(choosing)
    choosing.is_over = choosing.cost <= goal_of(choosing.bound)


def _combine(choosing: Choosing) -> None:
    """What the plans so far lead to, each by itself and together, if layouts follow one another."""
    search = choosing.search.hurried(budgets.FOLLOW_SHARE)
    if search.memory is None and not search.loose:
        levels = choosing.relaxed.levels or (search.mesh.sizes,)
        for plan in combine(search, levels, list(choosing.plans), goal_of(choosing.bound)):
            choosing.offer(plan)


def _choose_layers(choosing: Choosing) -> None:
    """Plans in which equal layers choose alike first, and then apart."""
    search = with_equal_layers(choosing.search.hurried(budgets.LAYERS_SHARE))
    sizes = block_sizes(search)
    with suppress(UnsolvedError, PlanError):
        alike = choosing.best or _by_blocks(search, sizes)
        search.tell("layers", alike.cost)
        choosing.offer(improve_layers(search, alike, goal_of(choosing.bound)))


def _bound_all_axes(choosing: Choosing) -> None:
    """The bound over all axes at once with small tables, where that is quick."""
    choosing.whole = AllAxes.of(choosing.ordered)
    _split(choosing, budgets.BOUND_SHARE, budgets.FIRST_TABLES)


def raise_relaxed_bound(choosing: Choosing) -> None:
    """The relaxed problem's bound with larger tables, and what its pieces lead to then."""
    search, before = choosing.search, choosing.relaxed
    share = budgets.BOUND_LAYERS_SHARE if choosing.has_layers else budgets.BOUND_SHARE
    search.tell("bound", choosing.cost)
    until = search.hurried(share).deadline
    if before.model is None and before.prices is None:  # there was no time for it
        relaxed = relaxed_of(search, until - planning_time())
    else:
        relaxed = before.tightened(choosing.cost, until)
    choosing.relaxed = relaxed
    choosing.raise_bound(relaxed.bound)
    if choosing.is_open and relaxed.parts != before.parts:
        choosing.offer(_from_pieces(choosing, search))


def _choose_blocks(choosing: Choosing) -> None:
    """A few axes at a time, from coarse to fine."""
    if choosing.best is None:
        choosing.offer(_by_blocks(choosing.search, choosing.sizes))
        return
    with suppress(UnsolvedError, PlanError):
        found = choose_by_blocks(choosing.search, choosing.sizes, needed=False)
        choosing.offer(replace(found, bound=0))


def _improve_blocks(choosing: Choosing) -> None:
    """Choose blocks of axes again, given all others."""
    share = budgets.IMPROVE_SHARE if choosing.is_joint else budgets.IMPROVE_ALONE_SHARE
    _improve(choosing, choosing.search.hurried(share), choosing.sizes)


def _improve_order(choosing: Choosing) -> None:
    """The same with axes in any order."""
    search = choosing.ordered.hurried(budgets.IMPROVE_SHARE if choosing.is_joint else 1.0)
    _improve(choosing, search, block_sizes(search))


def _improve(choosing: Choosing, search: Search, sizes: tuple[int, ...]) -> None:
    assert choosing.best is not None  # noqa: S101 - blocks come before
    search.tell("improve", choosing.cost)
    outcome, goal = choosing.best, goal_of(choosing.bound)
    for size in sizes:
        outcome, is_settled = improve_blocks(search, outcome, goal, size)
        if is_settled:
            break  # smaller blocks would find nothing either
    choosing.offer(outcome)


def _split_all_axes(choosing: Choosing) -> None:
    """The bound over all axes at once with large tables."""
    choosing.search.tell("tables", choosing.cost)
    if choosing.whole is None:
        choosing.whole = AllAxes.of(choosing.ordered.hurried(budgets.TABLES_SHARE))
    _split(choosing, budgets.SPLIT_SHARE)


def _split(choosing: Choosing, share: float, levels: int = len(BUCKET_CELLS)) -> None:
    if choosing.whole is not None:
        deadline = choosing.search.hurried(share).deadline
        choosing.search.tell("bound", choosing.cost)
        choosing.offer(choosing.whole.tighten(choosing.cost, deadline, levels))
        choosing.raise_bound(choosing.whole.bounding.value)


def _search_all_axes(choosing: Choosing) -> None:
    """All axes at once by branch and bound: often the proof of optimality."""
    ordered = choosing.ordered.hurried(budgets.WHOLE_SHARE)
    ordered.tell("search", choosing.cost)
    with suppress(UnsolvedError):  # too many choices for the time or the memory available
        outcome = choose_block(ordered, all_axes(ordered), {}, pairs=True)
        choosing.offer(outcome)
        choosing.raise_bound(outcome.bound)


def _by_blocks(search: Search, sizes: tuple[int, ...]) -> Outcome:
    """Choose by blocks or, where outer axes leave inner ones no choice, all axes at once."""
    try:
        return replace(choose_by_blocks(search, sizes), bound=0)
    except PlanError:
        is_wide = search.most_ways > budgets.LISTED_WAYS or has_passed(search.deadline)
        if len(search.mesh.sizes) <= sizes[0] or is_wide:
            raise
    return choose_block(search, all_axes(search), {}, pairs=True)


def is_small(search: Search) -> bool:
    """Whether one elimination can choose all axes at once."""
    return search.most_ways <= budgets.WHOLE_WAYS and search.choosers <= budgets.SMALL_GRAPH


def _is_narrow_enough(choosing: Choosing) -> bool:
    """Whether one elimination may choose all axes in any order."""
    return is_small(choosing.ordered) and not choosing.is_too_wide


def _is_narrow(choosing: Choosing) -> bool:
    """Whether a vertex has no more assignments than partition vectors, or few of either."""
    sizes, ways = choosing.search.mesh.sizes, choosing.ordered.most_ways
    is_narrow = len(set(sizes)) == len(sizes) or ways <= budgets.NARROW_WAYS
    return is_narrow and choosing.is_joint


def _is_late(choosing: Choosing) -> bool:
    """Whether all axes are considered at once, and there is time left for it."""
    return choosing.is_joint and not has_passed(choosing.search.deadline)


STAGES: tuple[Stage, ...] = (
    Stage(_choose_lightest, lambda now: now.search.is_ranked),
    Stage(_choose_whole, lambda now: now.search.is_ranked and _is_narrow_enough(now)),
    Stage(_choose_pieces, lambda now: now.is_open),
    Stage(_begin, lambda now: now.is_open),
    Stage(_choose_layers, lambda now: now.has_layers),
    Stage(_bound_all_axes, _is_narrow),
    # With a plan, but only the relaxed problem to bound it.
    Stage(raise_relaxed_bound, lambda now: now.whole is None and now.best is not None),
    # From nothing, a search of many layers finds nothing better than one of a few.
    Stage(_choose_blocks, lambda now: now.best is None or not now.has_layers),
    Stage(_combine, lambda now: not is_small(now.search)),
    Stage(_choose_whole, lambda now: not now.search.is_ranked and _is_narrow_enough(now)),
    Stage(_improve_blocks, lambda now: now.is_open),
    Stage(_improve_order, lambda now: len(now.search.mesh.sizes) > 1),
    Stage(raise_relaxed_bound, lambda now: now.whole is None and is_small(now.search)),
    Stage(_split_all_axes, lambda now: _is_late(now) and now.search.memory is None),
    Stage(_search_all_axes, _is_late),
)
"""Each stage, and where it applies. A ranked search minds what devices read and hold as well."""

"""The order in which ways to choose axes are tried.

Numbers of pieces from the relaxed problem are tried first, then blocks of axes, all with axes that
nest in mesh order. A plan that meets the bound of the relaxed problem is optimal among plans with
axes in any order. Where none does, any order is tried: blocks again, then regions of the graph,
then all axes at once, until the cost meets the bound or time is up.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from eindecomp.errors import PlanError, UnsolvedError
from eindecomp.planner.search.all_at_once import AllAxes
from eindecomp.planner.search.blocks import (
    block_sizes,
    choose_block,
    choose_by_blocks,
    improve,
    lighten,
)
from eindecomp.planner.search.layers import improve_layers, with_equal_layers
from eindecomp.planner.search.piece_choices import choose_by_pieces, pieces_chosen
from eindecomp.planner.search.regions import improve_regions
from eindecomp.planner.search.search import Outcome, Search, all_axes
from eindecomp.planner.space.restriction import FixedParts
from eindecomp.solve.clock import planning_time

if TYPE_CHECKING:
    from eindecomp.planner.search.relaxation import Relaxed

JOINT = 1700  # the most assignments of one vertex that are considered together
NARROW = 50  # the most assignments with which bounding all axes at once is quick
SMALL = 200  # the most vertices of a graph for which all axes are tried at once
WHOLE = 400  # the most assignments of one vertex for which they are
_IMPROVE = 0.25  # fraction of the remaining time for improving blocks before all axes at once
_LAYERS = 0.5  # fraction for plans in which equal layers choose alike
_PLAIN = 0.7  # fraction for improving blocks in mesh order where all axes at once are too many
_BOUND = 0.6  # fraction for raising the bound
_BOUND_OF_LAYERS = 0.85  # the same where equal layers have led to a plan
_FIRST = 3  # levels of tables that come before elimination
_REGIONS = 0.15  # fraction for improving regions before the bound is raised
_MAKE = 0.4  # fraction for making the tables of all axes at once
_TABLES = 0.8  # fraction for raising the bound over all axes at once
_WHOLE = 0.7  # fraction for searching all axes at once
_CLOSE = 0.01  # within a memory limit, a plan this close to the bound ends the search
ROUNDING = 1e-8  # of costs that are no integers
_PIECES = 0.15  # fraction for axes of given numbers of pieces
_ORDERED = 3  # the most axes that are nested in any order there
_NESTED = 5  # the most axes that are, once mesh order was not enough on several levels
_NESTING = 0.8  # fraction for that
_LIGHTEN = 0.05  # fraction of the time for what does not change the cost
LISTED = 5000  # the most assignments among which those with given numbers of pieces are picked


def choose(search: Search, relaxed: Relaxed, time_limit: float) -> Outcome:
    """The best choice of axes that is found in time, given what the relaxed problem has shown.

    Of plans that cost the same, it is one whose devices read and hold the least, as far as such a
    plan is easily found.
    """
    started = planning_time()
    deadline = started + time_limit
    search = replace(search, deadline=started + (1 - _LIGHTEN) * time_limit, bound=relaxed.bound)
    # The same space, but for the order in which axes nest: one axis has only one.
    plain = replace(search, any_order=False)
    ordered = replace(search, any_order=True)
    light = _lightest(plain, relaxed)
    if light is not None and not is_open(light.cost, relaxed.bound):
        return light
    if search.is_ranked and _is_small(ordered):
        with suppress(UnsolvedError):
            outcome = choose_block(replace(ordered, ranks=True), all_axes(search), {})
            return replace(outcome, bound=max(outcome.bound, relaxed.bound))
    # Where several numbers of pieces cost the same, others may lead to better axes.
    relaxed = relaxed.otherwise(search.deadline)
    outcome = _cheapest(plain, ordered, relaxed, light)
    if light is not None:
        outcome = replace(_better(outcome, light), bound=outcome.bound)
    if not search.is_ranked:
        return outcome
    now = planning_time()
    end = min(deadline, now + _LIGHTEN * (now - started))
    return replace(lighten(replace(ordered, deadline=end), outcome), bound=outcome.bound)


def _is_small(search: Search) -> bool:
    """Whether one elimination can choose all axes at once."""
    return search.most_ways <= WHOLE and search.choosers <= SMALL


def _lightest(plain: Search, relaxed: Relaxed) -> Outcome | None:
    """The plan that reads and holds the least among the cheapest with axes in mesh order.

    One solution gives it where all axes can be chosen at once, or numbers of pieces were ranked.
    """
    if not plain.is_ranked:
        return None
    plain = replace(plain, ranks=True)
    outcome: Outcome | None = None
    if _is_small(plain):
        with suppress(UnsolvedError):
            outcome = choose_block(plain, all_axes(plain), {})
    elif relaxed.is_light:
        outcome = _hinted(plain, block_sizes(plain), relaxed)
    return None if outcome is None else replace(outcome, bound=relaxed.bound)


def _cheapest(plain: Search, ordered: Search, relaxed: Relaxed, light: Outcome | None) -> Outcome:
    """The cheapest choice, whatever devices read and hold."""
    joint, small = ordered.most_ways <= JOINT, _is_small(plain)
    sizes = block_sizes(plain)
    if small and light is None and plain.is_ranked and len(sizes) > 1:
        sizes = sizes[1:]  # all axes together have just turned out to be too many
    outcome = light if small else _hinted(plain, sizes, relaxed)
    bound = relaxed.bound
    if outcome is not None and is_enough(plain, outcome.cost, bound):
        return replace(outcome, bound=bound)
    is_layered = plain.choosers > SMALL and not plain.alike
    if is_layered:
        outcome = _with_equal_layers(plain, relaxed, outcome)
    whole: AllAxes | None = None
    narrow = joint and _is_narrow(ordered) and (outcome is None or is_open(outcome.cost, bound))
    if narrow and (whole := AllAxes.of(ordered)) is not None:
        outcome = _tighten(_hurried(ordered, _BOUND), whole, outcome, _FIRST)
        bound = max(bound, whole.bound)
    elif outcome is not None and is_open(outcome.cost, bound):
        part = _BOUND_OF_LAYERS if is_layered else _BOUND
        relaxed, outcome = _tightened(plain, sizes, relaxed, outcome, part)
        bound = relaxed.bound
    plain, ordered = replace(plain, bound=bound), replace(ordered, bound=bound)
    # From nothing, a search of many layers finds nothing better than one of a few.
    if outcome is None or (is_open(outcome.cost, bound) and not is_layered):
        outcome = _better(outcome, replace(_start(plain, sizes), bound=0))
    if is_open(outcome.cost, bound) and _is_small(ordered):
        with suppress(UnsolvedError):
            started = choose_block(ordered, all_axes(ordered), {})
            bound = max(bound, started.bound)
            outcome = _better(outcome, started)
    plain.tell("improve", outcome.cost)
    outcome = improve(
        _hurried(plain, _IMPROVE if joint else _PLAIN), outcome, goal_of(bound), sizes
    )
    if len(plain.mesh.sizes) > 1:
        hurried = _hurried(ordered, _IMPROVE) if joint else ordered
        outcome = improve(hurried, outcome, goal_of(bound), block_sizes(ordered))
    if is_open(outcome.cost, bound) and small and whole is None:
        relaxed, outcome = _tightened(plain, sizes, relaxed, outcome, _BOUND)
        bound = max(bound, relaxed.bound)
    if is_open(outcome.cost, bound) and joint:
        bound, outcome = _at_once(ordered, whole, outcome, bound)
    return replace(outcome, bound=bound)


def _with_equal_layers(search: Search, relaxed: Relaxed, outcome: Outcome | None) -> Outcome | None:
    """The better of a plan, if there is one, and the best in which equal layers choose alike."""
    search = with_equal_layers(_hurried(search, _LAYERS))
    sizes = block_sizes(search)
    with suppress(UnsolvedError, PlanError):
        alike = _hinted(search, sizes, relaxed) or replace(_start(search, sizes), bound=0)
        search.tell("layers", alike.cost)
        outcome = _better(outcome, improve_layers(search, alike, goal_of(relaxed.bound)))
    return outcome


def _at_once(
    search: Search, whole: AllAxes | None, outcome: Outcome, bound: float
) -> tuple[float, Outcome]:
    """A better plan and a higher bound from considering all axes at once, while time is left."""
    free = search.memory is None
    search = replace(search, bound=bound)
    if free and planning_time() < search.deadline:
        outcome = improve_regions(_hurried(search, _REGIONS), outcome, goal_of(bound))
    if (
        free
        and whole is None
        and is_open(outcome.cost, bound)
        and planning_time() < search.deadline
    ):
        search.tell("tables", outcome.cost)
        whole = AllAxes.of(_hurried(search, _MAKE))
    if whole is not None and is_open(outcome.cost, bound) and planning_time() < search.deadline:
        outcome = _better(_tighten(_hurried(search, _TABLES), whole, outcome), outcome)
        bound = max(bound, whole.bound)
    search = replace(search, bound=bound)
    if is_open(outcome.cost, bound) and planning_time() < search.deadline:
        bound, outcome = _searched(_hurried(search, _WHOLE), outcome, bound)
    if free and is_open(outcome.cost, bound):
        outcome = improve_regions(search, outcome, goal_of(bound))
    return bound, outcome


def _hurried(search: Search, part: float) -> Search:
    """The same search with a fraction of the time that is left."""
    now = planning_time()
    return replace(search, deadline=now + part * max(search.deadline - now, 0))


def _tighten(
    search: Search, whole: AllAxes, outcome: Outcome | None, levels: int | None = None
) -> Outcome | None:
    """Raise the bound over all axes at once; the best plan known then, if there is one."""
    goal = inf if outcome is None else outcome.cost
    search.tell("bound", goal)
    tightened = whole.tighten(goal, search.deadline, levels)
    return tightened if outcome is None else _better(tightened, outcome)


def _searched(search: Search, outcome: Outcome, bound: float) -> tuple[float, Outcome]:
    """Search all axes at once: a higher bound, a better plan, often the proof of optimality."""
    search.tell("search", outcome.cost)
    try:
        whole = choose_block(search, all_axes(search), {}, pairs=True)
    except UnsolvedError:
        return bound, outcome  # too many choices for the time or the memory available
    return max(whole.bound, bound), min(whole, outcome, key=lambda each: each.cost)


def _tightened(
    search: Search, sizes: tuple[int, ...], relaxed: Relaxed, outcome: Outcome, part: float
) -> tuple[Relaxed, Outcome]:
    """The relaxed problem with a higher bound, in part of the time, and the better of two plans."""
    search.tell("bound", outcome.cost)
    now = planning_time()
    tight = relaxed.tightened(outcome.cost, now + part * (search.deadline - now))
    if is_open(outcome.cost, tight.bound) and tight.parts != relaxed.parts:
        outcome = _better(_hinted(search, sizes, tight), outcome)
    return tight, outcome


def _hinted(search: Search, sizes: tuple[int, ...], relaxed: Relaxed) -> Outcome | None:
    """The plan that the relaxed problem's pieces lead to; None if they lead to none."""
    if relaxed.parts is None or relaxed.vectors is None:
        return None
    if search.memory is not None and len(relaxed.levels) > 1:
        return None
    if search.memory is not None or search.redundant:
        return _by_pieces(search, relaxed)
    restricted = replace(search, restriction=FixedParts(relaxed.parts, search.mesh.devices))
    # With given numbers of pieces, an axis has few labels to choose from.
    every = (max(len(search.mesh.sizes), 1),) if search.most_ways <= LISTED else ()
    try:
        outcome = replace(choose_by_blocks(restricted, (*every, *sizes)), bound=0)
    except PlanError:
        if not search.rules.pinned:
            raise
        return None  # pieces do not say which axes a pin asks for
    if is_open(outcome.cost, relaxed.bound) and 1 < len(search.mesh.sizes) <= _ORDERED:
        other = _by_pieces(search, relaxed)
        outcome = outcome if other is None else _better(other, outcome)
    return outcome


def _by_pieces(search: Search, relaxed: Relaxed) -> Outcome | None:
    """The best plan with the relaxed problem's pieces, one vector first and then any of several."""
    assert relaxed.vectors is not None  # noqa: S101 - asked before
    outcome: Outcome | None = None
    axes = len(search.mesh.sizes)
    search = replace(search, any_order=axes <= _ORDERED)
    first = {name: rows[:1] for name, rows in relaxed.vectors.items()}
    every = [first] if first == relaxed.vectors else [first, relaxed.vectors]
    for vectors in every:
        search.tell("pieces", inf if outcome is None else outcome.cost)
        with suppress(UnsolvedError, PlanError):
            found = choose_by_pieces(_hurried(search, _PIECES), relaxed.levels, vectors)
            outcome = _better(outcome, replace(found, bound=0))
    several = len(relaxed.levels) > 1 and _ORDERED < axes <= _NESTED
    if several and outcome is not None and not is_enough(search, outcome.cost, relaxed.bound):
        search.tell("nesting", outcome.cost)
        ordered = _hurried(replace(search, any_order=True), _NESTING)
        vectors = pieces_chosen(search, relaxed.levels, outcome)
        with suppress(UnsolvedError, PlanError):
            found = choose_by_pieces(ordered, relaxed.levels, vectors)
            outcome = _better(outcome, replace(found, bound=0))
    return outcome


def is_open(cost: float, bound: float) -> bool:
    """Whether a plan may cost less; seconds that differ by rounding are equal."""
    slack = 0 if isinstance(cost, int) else ROUNDING * abs(cost)
    return cost - slack > bound


def is_enough(search: Search, cost: float, bound: float) -> bool:
    """Whether a plan ends the search: it is optimal or, where that is not to be had, nearly so."""
    close = _CLOSE if search.memory is not None else search.close
    return (close > 0 and cost <= (1 + close) * bound) or not is_open(cost, bound)


def goal_of(bound: float) -> float:
    """The most that a plan can cost that meets a bound."""
    return bound if isinstance(bound, int) else bound * (1 + ROUNDING)


def _better(one: Outcome | None, other: Outcome) -> Outcome:
    return other if one is None or other.cost <= one.cost else one


def _start(search: Search, sizes: tuple[int, ...]) -> Outcome:
    """Choose by blocks or, where outer axes leave inner ones no choice, all axes at once."""
    try:
        return choose_by_blocks(search, sizes)
    except PlanError:
        if len(search.mesh.sizes) <= sizes[0] or search.most_ways > LISTED:
            raise
    return choose_block(search, all_axes(search), {}, pairs=True)


def _is_narrow(search: Search) -> bool:
    """Whether a vertex has no more assignments than partition vectors, or few of either."""
    sizes = search.mesh.sizes
    return len(set(sizes)) == len(sizes) or search.most_ways <= NARROW

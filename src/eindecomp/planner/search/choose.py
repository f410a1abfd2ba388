"""The order in which ways to choose axes are tried.

Numbers of pieces from the relaxed problem are tried first, then blocks of axes, then regions of the
graph, then all axes at once, until the cost meets the bound or time is up.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from eindecomp.errors import PlanError, UnsolvedError
from eindecomp.planner.costs.bytes_moved import PriceInBytes
from eindecomp.planner.search.all_at_once import AllAxes
from eindecomp.planner.search.blocks import (
    block_sizes,
    choose_block,
    choose_by_blocks,
    improve,
    lighten,
    most_labels,
)
from eindecomp.planner.search.regions import improve_regions
from eindecomp.planner.search.search import Outcome, Search, all_axes
from eindecomp.planner.space.strategy import FixedParts

if TYPE_CHECKING:
    from eindecomp.planner.search.relaxation import Relaxed

JOINT = 1300  # the most assignments of one vertex that are considered together
NARROW = 50  # the most assignments with which bounding all axes at once is quick
SMALL = 200  # the most vertices of a graph for which all axes are tried at once
_IMPROVE = 0.25  # fraction of the remaining time for improving blocks before all axes at once
_BOUND = 0.6  # fraction for raising the bound
_FIRST = 3  # levels of tables that come before elimination
_REGIONS = 0.15  # fraction for improving regions before the bound is raised
_MAKE = 0.4  # fraction for making the tables of all axes at once
_TABLES = 0.8  # fraction for raising the bound over all axes at once
_WHOLE = 0.7  # fraction for searching all axes at once
_LIGHTEN = 0.05  # fraction of the time for what does not change the cost
LISTED = 5000  # the most assignments among which those with given numbers of pieces are picked


def choose(search: Search, relaxed: Relaxed, time_limit: float) -> Outcome:
    """The best choice of axes that is found in time, given what the relaxed problem has shown.

    Of plans that cost the same, it is one whose devices read and hold the least, as far as such a
    plan is easily found.
    """
    started = monotonic()
    deadline = started + time_limit
    search = replace(search, deadline=started + (1 - _LIGHTEN) * time_limit, bound=relaxed.bound)
    sizes = block_sizes(search)
    small = len(search.mesh.sizes) <= sizes[0] and len(search.graph.vertices) <= SMALL
    light = _lightest(search, sizes, relaxed, small=small)
    if light is not None and light.cost <= light.bound:
        return light
    if small and light is None and _is_ranked(search) and len(sizes) > 1:
        sizes = sizes[1:]  # all axes together have just turned out to be too many
    # Where several numbers of pieces cost the same, others may lead to better axes.
    relaxed = relaxed.otherwise(search.deadline)
    outcome = _cheapest(search, sizes, relaxed, small=small)
    if light is not None:
        outcome = replace(_better(outcome, light), bound=outcome.bound)
    if not _is_ranked(search):
        return outcome
    now = monotonic()
    end = min(deadline, now + _LIGHTEN * (now - started))
    return replace(lighten(replace(search, deadline=end), outcome), bound=outcome.bound)


def _lightest(
    search: Search, sizes: tuple[int, ...], relaxed: Relaxed, *, small: bool
) -> Outcome | None:
    """The plan that reads and holds the least among the cheapest, where one solution gives it.

    It does where all axes can be chosen at once, or where numbers of pieces were ranked.
    """
    if not _is_ranked(search):
        return None
    search = replace(search, ranks=True)
    if small:
        with suppress(UnsolvedError):
            return choose_block(search, all_axes(search), {})
    if relaxed.is_light and not small:
        hinted = _hinted(search, sizes, relaxed)
        return None if hinted is None else replace(hinted, bound=relaxed.bound)
    return None


def _is_ranked(search: Search) -> bool:
    """Whether what devices read and hold decides between plans of equal cost."""
    return search.memory is None and isinstance(search.price, PriceInBytes)


def _cheapest(search: Search, sizes: tuple[int, ...], relaxed: Relaxed, *, small: bool) -> Outcome:
    """The cheapest choice, whatever devices read and hold."""
    joint = _ways(search) <= JOINT
    outcome = None if small else _hinted(search, sizes, relaxed)
    bound = relaxed.bound
    whole: AllAxes | None = None
    narrow = joint and _is_narrow(search) and (outcome is None or outcome.cost > bound)
    if narrow and (whole := AllAxes.of(search)) is not None:
        outcome = _tighten(_hurried(search, _BOUND), whole, outcome, _FIRST)
        bound = max(bound, whole.bound)
    elif outcome is not None and outcome.cost > bound:
        relaxed, outcome = _tightened(search, sizes, relaxed, outcome)
        bound = relaxed.bound
    search = replace(search, bound=bound)
    if outcome is None or outcome.cost > bound:
        started = _start(search, sizes)
        bound = max(bound, started.bound)
        outcome = _better(outcome, started)
    search.tell("improve", outcome.cost)
    outcome = improve(_hurried(search, _IMPROVE) if joint else search, outcome, bound, sizes)
    if outcome.cost > bound and small and whole is None:
        relaxed, outcome = _tightened(search, sizes, relaxed, outcome)
        bound = max(bound, relaxed.bound)
    if outcome.cost > bound and joint:
        bound, outcome = _at_once(search, whole, outcome, bound)
    return replace(outcome, bound=bound)


def _at_once(
    search: Search, whole: AllAxes | None, outcome: Outcome, bound: float
) -> tuple[float, Outcome]:
    """A better plan and a higher bound from considering all axes at once, while time is left."""
    free = search.memory is None
    search = replace(search, bound=bound)
    if free and monotonic() < search.deadline:
        outcome = improve_regions(_hurried(search, _REGIONS), outcome, bound)
    if free and whole is None and outcome.cost > bound and monotonic() < search.deadline:
        search.tell("tables", outcome.cost)
        whole = AllAxes.of(_hurried(search, _MAKE))
    if whole is not None and outcome.cost > bound and monotonic() < search.deadline:
        outcome = _better(_tighten(_hurried(search, _TABLES), whole, outcome), outcome)
        bound = max(bound, whole.bound)
    search = replace(search, bound=bound)
    if outcome.cost > bound and monotonic() < search.deadline:
        bound, outcome = _searched(_hurried(search, _WHOLE), outcome, bound)
    if free and outcome.cost > bound:
        outcome = improve_regions(search, outcome, bound)
    return bound, outcome


def _hurried(search: Search, part: float) -> Search:
    """The same search with a fraction of the time that is left."""
    now = monotonic()
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
    search: Search, sizes: tuple[int, ...], relaxed: Relaxed, outcome: Outcome
) -> tuple[Relaxed, Outcome]:
    """The relaxed problem with a higher bound, and the better of two plans."""
    search.tell("bound", outcome.cost)
    now = monotonic()
    tight = relaxed.tightened(outcome.cost, now + _BOUND * (search.deadline - now))
    if outcome.cost > tight.bound and tight.parts != relaxed.parts:
        outcome = _better(_hinted(search, sizes, tight), outcome)
    return tight, outcome


def _hinted(search: Search, sizes: tuple[int, ...], relaxed: Relaxed) -> Outcome | None:
    """The plan that the relaxed problem's pieces lead to; None with pins or a memory limit."""
    if relaxed.parts is None or search.memory is not None or search.pinned:
        return None
    search = replace(search, restriction=FixedParts(relaxed.parts, search.mesh.devices))
    # With given numbers of pieces, an axis has few labels to choose from.
    every = (max(len(search.mesh.sizes), 1),) if _ways(search) <= LISTED else ()
    return replace(choose_by_blocks(search, (*every, *sizes)), bound=0)


def _better(one: Outcome | None, other: Outcome) -> Outcome:
    return other if one is None or other.cost <= one.cost else one


def _start(search: Search, sizes: tuple[int, ...]) -> Outcome:
    """Choose by blocks or, where outer axes leave inner ones no choice, all axes at once."""
    try:
        return choose_by_blocks(search, sizes)
    except PlanError:
        if len(search.mesh.sizes) <= sizes[0] or _ways(search) > LISTED:
            raise
    return choose_block(search, all_axes(search), {}, pairs=True)


def _is_narrow(search: Search) -> bool:
    """Whether a vertex has no more assignments than partition vectors, or few of either."""
    sizes = search.mesh.sizes
    return len(set(sizes)) == len(sizes) or _ways(search) <= NARROW


def _ways(search: Search) -> int:
    """The most assignments that a vertex can have."""
    return most_labels(search) ** len(search.mesh.sizes)

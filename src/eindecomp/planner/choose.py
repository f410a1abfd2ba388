"""Chains the ways to choose axes: by blocks, from the relaxed problem, by regions, all together."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from eindecomp.errors import PlanError
from eindecomp.planner.axes import (
    BLOCK,
    Outcome,
    Search,
    all_axes,
    block_sizes,
    choose_block,
    choose_by_blocks,
    improve,
    most_labels,
)
from eindecomp.planner.regions import improve_regions
from eindecomp.planner.strategy import Fixed

if TYPE_CHECKING:
    from eindecomp.planner.relax import Relaxed

JOINT = 700  # the most assignments of one vertex that are looked at together
LISTED = 5000  # the most that are listed to pick those that agree with numbers of pieces


def choose(
    search: Search, relaxed: Relaxed, time_limit: float, *, exactly: bool = False
) -> Outcome:
    """The best choice of axes that can be found in time, given what relaxing it has shown."""
    search = replace(search, deadline=monotonic() + time_limit, bound=relaxed.bound)
    sizes = block_sizes(search)
    found = [_start(search, sizes)]
    free = search.memory is None and not search.pinned
    if found[0].cost > relaxed.bound and relaxed.parts is not None and free:
        hinted = replace(search, restriction=Fixed(relaxed.parts, search.mesh.devices))
        # With the numbers of pieces given, an axis has few labels to choose from.
        every = (len(search.mesh.sizes),) if _ways(search) <= LISTED else ()
        found.append(choose_by_blocks(hinted, (*every, *sizes)))
    bound = max(found[0].bound, relaxed.bound)
    outcome = min(found, key=lambda each: each.cost)
    search = replace(search, bound=bound)
    search.tell("improve", outcome.cost)
    outcome = improve(search, outcome, bound)
    joint = _joins(search, exactly)
    if outcome.cost > bound and joint and search.memory is None:
        outcome = improve_regions(search, outcome, bound)
    # Where relaxing went through, search and bound over everything adds nothing in sensible time.
    hopeful = exactly or relaxed.parts is None
    if outcome.cost > bound and joint and hopeful and monotonic() < search.deadline:
        search.tell("search", outcome.cost)
        whole = choose_block(search, all_axes(search), {}, pairs=True)
        bound = max(whole.bound, bound)
        outcome = min(whole, outcome, key=lambda each: each.cost)
    return replace(outcome, bound=bound)


def _start(search: Search, sizes: tuple[int, ...]) -> Outcome:
    """By blocks; where outer axes leave the inner ones no way out, all axes at once."""
    try:
        return choose_by_blocks(search, sizes)
    except PlanError:
        if len(search.mesh.sizes) <= sizes[0] or _ways(search) > LISTED:
            raise
    return choose_block(search, all_axes(search), {}, pairs=True)


def _joins(search: Search, exactly: bool) -> bool:
    """Whether all axes of a vertex may be chosen together."""
    return _ways(search) <= (JOINT if exactly or search.redundant else BLOCK)


def _ways(search: Search) -> int:
    """The most assignments that a vertex can have."""
    return most_labels(search) ** len(search.mesh.sizes)

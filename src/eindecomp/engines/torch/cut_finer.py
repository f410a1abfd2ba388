"""Cutting a plan finer where its tiles do not fit on the GPU, before anything runs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from eindecomp.errors import PlanError
from eindecomp.planner.make import plan as make_plan
from eindecomp.tra.paging.make import ArenaTooSmallError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eindecomp.planner.plan import Plan

MOST = 512
"""Pieces, beyond which nothing is cut finer."""
_TIME = 10.0  # seconds for each plan
T = TypeVar("T")


def made_to_fit(plan: Plan, make: Callable[[Plan], T]) -> T:
    """What `make` makes of a plan or, where tiles are too large for it, of one that cuts finer.

    The devices of such a plan share one GPU, so that what moves between them costs little; it is
    made for the fewest bytes with tiles of at most a quarter of what there is room for.
    If none fits, the error is that of the plan that lacks the fewest bytes.
    """
    try:
        return make(plan)
    except ArenaTooSmallError as error:
        least = error
    if least.available <= 0:
        raise least
    for finer in _finer(plan, least):
        try:
            return make(finer)
        except ArenaTooSmallError as error:
            least = min(least, error, key=lambda each: each.missing)
    raise least


def _finer(plan: Plan, error: ArenaTooSmallError) -> Iterator[Plan]:
    """Plans of more and more pieces, from as many as could make the largest tiles fit."""
    devices = plan.devices
    while devices < MOST:
        devices *= 2
        if devices // plan.devices * error.available < error.needed:
            continue
        with suppress(PlanError):  # as where there are too many ways to list them
            yield make_plan(
                plan.graph, devices, strategy={"tiles": error.available // 4}, tie=plan.tie,
                rewrite=False, time_limit=_TIME,
            )  # fmt: skip

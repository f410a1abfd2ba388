"""Cutting a plan finer where its tiles do not fit on the GPU, before anything runs."""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from eindecomp.errors import PlanError
from eindecomp.planner.make import plan as make_plan
from eindecomp.tra.paging.make import ArenaTooSmallError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eindecomp.planner.plan import Plan

MOST = 512
"""Pieces, beyond which nothing is cut finer."""
_AT_ONCE = 2 / 3
"""The share of the room that one region may take while the next one's tensors are fetched."""
_EACH = 10.0  # seconds for each plan
_TIME = 60.0  # seconds for all of them
_IN_VAIN = 3  # plans that need no less than the one before them, after which no more are tried
T = TypeVar("T")


def made_to_fit(plan: Plan, make: Callable[..., T], room: int, *, finer: bool) -> T:
    """What `make` makes of a plan or, where tiles are too large for it, of one that cuts finer.

    It makes a program whose regions take up to `room` bytes; if `strict`, none takes more.
    While a region uses part of the room, what comes next can be fetched: that is tried first, then
    all of it. The devices of a finer plan share one GPU, so that what moves between them costs
    little; it is made for the fewest bytes among those that cut into the fewest pieces.
    If none fits, the error is that of the plan that lacks the fewest bytes.
    """
    part = int(room * _AT_ONCE)
    tried: list[tuple[int, Plan]] = []
    for each in _finer(plan, part) if finer and room > 0 else (plan,):
        try:
            return make(each, room=part, strict=True)
        except ArenaTooSmallError as error:
            tried.append((error.needed, each))
        if len(tried) > _IN_VAIN and tried[-1][0] >= tried[-1 - _IN_VAIN][0]:
            break
    least = min(needed for needed, _ in tried)
    errors: list[ArenaTooSmallError] = []
    for each in [each for needed, each in tried if needed <= max(room, least)]:
        try:
            return make(each, room=room, strict=False)
        except ArenaTooSmallError as error:
            errors.append(error)
    raise min(errors, key=lambda error: error.missing)


def _finer(plan: Plan, room: int) -> Iterator[Plan]:
    """The plan, the same uncut, then plans of more and more pieces while there is time."""
    begin = perf_counter()
    yield plan
    counts = [2**k for k in range(MOST.bit_length()) if plan.devices < 2**k <= MOST]
    for devices in [*([1] if plan.devices > 1 else []), *counts]:
        left = _TIME - (perf_counter() - begin)
        if left <= 0:
            return
        with suppress(PlanError):  # as where there are too many ways to list them
            yield make_plan(
                plan.graph, devices, strategy={"tiles": room}, tie=plan.tie,
                rewrite=False, time_limit=min(_EACH, left), progress=False,
            )  # fmt: skip

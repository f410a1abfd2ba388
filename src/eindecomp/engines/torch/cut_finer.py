"""Cutting a plan finer where its tiles do not fit on the GPU, before anything runs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from eindecomp.errors import PlanError
from eindecomp.planner.make import plan as make_plan
from eindecomp.tra.paging.make import ArenaTooSmallError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eindecomp.planner.plan import Plan

MOST = 512
"""Pieces, beyond which nothing is cut finer."""
_AT_ONCE = 2 / 3
"""The share of the room that one region may take while the next one's tensors are fetched."""
_TIME = 10.0  # seconds for each plan
T = TypeVar("T", covariant=True)


class Make(Protocol[T]):
    """Makes a program of a plan whose regions take up to `room` bytes; if `strict`, none more."""

    def __call__(self, plan: Plan, *, room: int, strict: bool) -> T:
        """Make it, or raise an `ArenaTooSmallError`."""
        ...


def made_to_fit(plan: Plan, make: Make[T], room: int, *, finer: bool) -> T:
    """What `make` makes of a plan or, where tiles are too large for it, of one that cuts finer.

    While a region uses part of the room, what comes next can be fetched: that is tried first, then
    all of it. The devices of a finer plan share one GPU, so that what moves between them costs
    little; it is made for the fewest bytes among those that cut into the fewest pieces.
    If none fits, the error is that of the plan that lacks the fewest bytes.
    """
    part = int(room * _AT_ONCE)
    for each in _tried(plan, part, finer):
        with suppress(ArenaTooSmallError):
            return make(each, room=part, strict=True)
    errors: list[ArenaTooSmallError] = []
    for each in _tried(plan, room, finer):
        try:
            return make(each, room=room, strict=False)
        except ArenaTooSmallError as error:
            errors.append(error)
    raise min(errors, key=lambda error: error.missing)


def _tried(plan: Plan, room: int, finer: bool) -> Iterator[Plan]:
    """The plan, then plans of more and more pieces."""
    yield plan
    devices = plan.devices
    while finer and room > 0 and devices < MOST:
        devices *= 2
        with suppress(PlanError):  # as where there are too many ways to list them
            yield make_plan(
                plan.graph, devices, strategy={"tiles": room}, tie=plan.tie,
                rewrite=False, time_limit=_TIME,
            )  # fmt: skip

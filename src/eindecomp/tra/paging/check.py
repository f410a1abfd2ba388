"""Checks a schedule, knowing nothing of how it was made.

Two actions race if they touch the same memory, one of them writes there, and neither waits for the
other, directly or through others. Where nothing races, all orders that streams and waits allow
leave the same contents everywhere, so that it is enough to carry out one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.errors import PlanError
from eindecomp.tra.paging.contents import Contents
from eindecomp.tra.paging.schedule import Fetch, Keep, Read, Run, Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eindecomp.tra.paging.schedule import Action, Schedule


class ScheduleError(PlanError):
    """A schedule would not compute what its workload says."""


@dataclass(frozen=True, slots=True)
class _Access:
    """An action reads or writes a part of some memory."""

    action: int
    memory: str
    start: int
    end: int
    writes: bool


def check_schedule(schedule: Schedule) -> None:
    """Raise an error unless every task finds what it reads, in every order that waits allow."""
    _check_form(schedule)
    _check_races(schedule)
    _check_contents(schedule)


def _check_form(schedule: Schedule) -> None:
    """Everything in its bounds: waits come before, windows in the arena, blocks in the ring."""
    tasks = [action.task for action in schedule.actions if isinstance(action, Run)]
    if tasks != list(range(len(schedule.workload.tasks))):
        raise ScheduleError(f"tasks run in the order {tasks}")
    for number, action in enumerate(schedule.actions):
        if any(not 0 <= wait < number for wait in action.waits):
            raise ScheduleError(f"action {number} waits for {action.waits}: not all before it")
        for access in _accesses(schedule, number, action):
            limit = schedule.arena if access.memory == "arena" else schedule.staging.block
            if access.memory.startswith("host"):
                continue
            if access.start < 0 or access.end > limit:
                raise ScheduleError(
                    f"action {number} touches bytes {access.start} to {access.end} of "
                    f"{access.memory}, which has {limit}"
                )
        if isinstance(action, Read) and not 0 <= action.block < schedule.staging.blocks:
            raise ScheduleError(f"action {number} reads into block {action.block}")


def _accesses(schedule: Schedule, number: int, action: Action) -> Iterator[_Access]:
    """The memory that an action touches."""
    match action:
        case Read(block=block, nbytes=nbytes):
            yield _Access(number, f"block {block}", 0, nbytes, True)
        case Fetch(tensor=tensor, nbytes=nbytes, block=block):
            start = action.offset + action.start
            yield _Access(number, "arena", start, start + nbytes, True)
            source = f"host {tensor}" if block is None else f"block {block}"
            yield _Access(number, source, 0, nbytes, False)
        case Store(tensor=tensor, offset=offset, nbytes=nbytes):
            yield _Access(number, "arena", offset, offset + nbytes, False)
            yield _Access(number, f"host {tensor}", 0, nbytes, True)
        case Keep(offset=offset, nbytes=nbytes, into=into):
            yield _Access(number, "arena", offset, offset + nbytes, False)
            yield _Access(number, "arena", into, into + nbytes, True)
        case Run():
            task = schedule.workload.tasks[action.task]
            for used, offsets, writes in (
                (task.reads, action.reads, False),
                (task.writes, action.writes, True),
            ):
                for tensor, offset in zip(used, offsets, strict=True):
                    nbytes = schedule.workload.tensors[tensor].nbytes
                    yield _Access(number, "arena", offset, offset + nbytes, writes)


def _check_races(schedule: Schedule) -> None:
    before = _before(schedule.actions)
    memories: dict[str, list[_Access]] = {}
    for number, action in enumerate(schedule.actions):
        for access in _accesses(schedule, number, action):
            memories.setdefault(access.memory, []).append(access)
    for accesses in memories.values():
        for one, other in _overlapping(accesses):
            if not (one.writes or other.writes):
                continue
            first, last = sorted((one.action, other.action))
            if first == last or not before[last] >> first & 1:
                raise ScheduleError(
                    f"actions {first} and {last} race for {one.memory}: "
                    f"{schedule.actions[first]}, {schedule.actions[last]}"
                )


def _before(actions: Sequence[Action]) -> list[int]:
    """For every action those that have ended when it begins, as the bits of a number."""
    before: list[int] = []
    latest: dict[str, int] = {}
    for number, action in enumerate(actions):
        known = 0
        for other in (*action.waits, latest.get(action.stream)):
            if other is not None:
                known |= before[other] | 1 << other
        before.append(known)
        latest[action.stream] = number
    return before


def _overlapping(accesses: list[_Access]) -> Iterator[tuple[_Access, _Access]]:
    """All pairs that share a byte."""
    open_: list[_Access] = []
    for access in sorted(accesses, key=lambda access: access.start):
        if access.start == access.end:
            continue
        open_ = [other for other in open_ if other.end > access.start]
        yield from ((other, access) for other in open_)
        open_.append(access)


def _check_contents(schedule: Schedule) -> None:
    contents = Contents(schedule.workload)
    for window in schedule.resident:
        tensor = schedule.workload.tensors[window.tensor]
        if not tensor.may_stay:
            raise ScheduleError(f"{tensor.name} is resident, but differs from run to run")
        if not 0 <= window.offset <= schedule.arena - tensor.nbytes:
            raise ScheduleError(f"{tensor.name} is resident outside of the arena")
        contents.write(window.tensor, window.offset, 0, tensor.nbytes)
    for number, action in enumerate(schedule.actions):
        if problem := contents.carry_out(action):
            raise ScheduleError(f"action {number}: {problem}")
    renewed = schedule.renewed
    for window in (*schedule.resident, *schedule.left):
        number = renewed.get(window.tensor, window.tensor)
        if not contents.holds(number, window.offset):
            name = schedule.workload.tensors[number].name
            raise ScheduleError(f"{name} is not in its window when the run has ended")
    if {window.tensor for window in schedule.left} != set(schedule.workload.left):
        raise ScheduleError("the windows that a run leaves are not those of what ends on the GPU")
    if missing := contents.missing_on_host(renewed.values()):
        raise ScheduleError(f"{', '.join(missing)} must end on the host")

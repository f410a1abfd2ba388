"""Verifies a schedule, knowing nothing of how it was made.

Two actions race if they touch the same memory, one of them writes there, and neither waits for the
other, directly or through others. Where nothing races, all orders that streams and waits allow
leave the same contents everywhere, so that it is enough to carry out one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eindecomp.errors import PlanError
from eindecomp.tra.paging.schedule import Execute, Fetch, Keep, Stage, Store
from eindecomp.tra.paging.workload import Begins

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from eindecomp.tra.paging.schedule import Action, Schedule
    from eindecomp.tra.paging.workload import Workload


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


def verify(schedule: Schedule) -> None:
    """Raise an error unless every task finds what it reads, in every order that waits allow."""
    _check_form(schedule)
    _check_races(schedule)
    _check_contents(schedule)


def _check_form(schedule: Schedule) -> None:
    """Everything in its bounds: waits come before, windows in the arena, blocks in the ring."""
    tasks = [action.task for action in schedule.actions if isinstance(action, Execute)]
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
        if isinstance(action, Stage) and not 0 <= action.block < schedule.staging.blocks:
            raise ScheduleError(f"action {number} reads into block {action.block}")


def _accesses(schedule: Schedule, number: int, action: Action) -> Iterator[_Access]:
    """The memory that an action touches."""
    match action:
        case Stage(block=block, nbytes=nbytes):
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
        case Execute():
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
    contents = _Contents(schedule.workload)
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
    for window in schedule.resident:
        number = renewed.get(window.tensor, window.tensor)
        if not contents.holds(number, window.offset):
            name = schedule.workload.tensors[number].name
            raise ScheduleError(f"{name} is not in its window when the run has ended")
    if missing := contents.missing_on_host(renewed.values()):
        raise ScheduleError(f"{', '.join(missing)} must end on the host")


@dataclass
class _Contents:
    """Parts of tensors in the arena, in staging blocks, and made tensors on the host."""

    workload: Workload
    arena: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])
    """Start, end, the tensor, and where its window begins; no two overlap."""
    blocks: dict[int, tuple[int, int, int]] = field(default_factory=dict[int, tuple[int, int, int]])
    """The tensor, the start and the bytes that a block holds."""
    copies: set[int] = field(default_factory=set[int])

    def carry_out(self, action: Action) -> str:
        """Change the contents as an action does; says what it does not find, if anything."""
        match action:
            case Stage():
                if self._begins(action.tensor) is not Begins.DISK:
                    return f"{self._name(action.tensor)} is not on disk"
                self.blocks[action.block] = action.tensor, action.start, action.nbytes
            case Fetch(tensor=tensor, start=start, nbytes=nbytes):
                if not self._has_source(action):
                    return f"{self._name(tensor)} is not where it is fetched from"
                self.write(tensor, action.offset, start, nbytes)
            case Store():
                if not self.holds(action.tensor, action.offset):
                    return f"{self._name(action.tensor)} is not where it is stored from"
                self.copies.add(action.tensor)
            case Keep():
                return self._keep(action)
            case Execute():
                return self._run(action)
        return ""

    def _keep(self, action: Keep) -> str:
        tensor = action.tensor
        if not self.holds(tensor, action.offset):
            return f"{self._name(tensor)} is not where it is kept from"
        if self.workload.tensors[action.renews].renewed_by != tensor:
            return f"{self._name(tensor)} does not renew {self._name(action.renews)}"
        self.write(tensor, action.into, 0, action.nbytes)
        return ""

    def _run(self, action: Execute) -> str:
        task = self.workload.tasks[action.task]
        for tensor, offset in zip(task.reads, action.reads, strict=True):
            if not self.holds(tensor, offset):
                return f"{self._name(tensor)} is not where {task.name} reads it"
        for tensor, offset in zip(task.writes, action.writes, strict=True):
            self.write(tensor, offset, 0, self.workload.tensors[tensor].nbytes)
        return ""

    def write(self, tensor: int, offset: int, start: int, nbytes: int) -> None:
        """A part of a tensor comes to its window, over whatever was there."""
        low, high = offset + start, offset + start + nbytes
        kept: list[tuple[int, int, int, int]] = []
        for begin, end, other, base in self.arena:
            if begin < min(end, low):
                kept.append((begin, min(end, low), other, base))
            if max(begin, high) < end:
                kept.append((max(begin, high), end, other, base))
        self.arena = [*kept, (low, high, tensor, offset)]

    def holds(self, tensor: int, offset: int) -> bool:
        """Whether all bytes of a tensor are in a window."""
        there = sum(end - begin for begin, end, *what in self.arena if what == [tensor, offset])
        return there == self.workload.tensors[tensor].nbytes

    def missing_on_host(self, kept: Collection[int]) -> list[str]:
        """The names of the tensors that are not on the host but must be, unless they are kept."""
        return [
            tensor.name
            for tensor in self.workload.tensors
            if tensor.made and tensor.is_result and tensor.nbytes
            if tensor.number not in self.copies and tensor.number not in kept
        ]

    def _has_source(self, fetch: Fetch) -> bool:
        if fetch.block is not None:
            return self.blocks.get(fetch.block) == (fetch.tensor, fetch.start, fetch.nbytes)
        return self._begins(fetch.tensor) is Begins.HOST or fetch.tensor in self.copies

    def _begins(self, tensor: int) -> Begins:
        return self.workload.tensors[tensor].begins

    def _name(self, tensor: int) -> str:
        return self.workload.tensors[tensor].name

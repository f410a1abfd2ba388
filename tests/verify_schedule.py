"""`verify_schedule` checks a schedule of paging, knowing nothing of how it was made.

Two actions race if they touch the same memory, one of them writes there, and neither waits for the
other, directly or through others. Where nothing races, all orders that streams and waits allow
leave the same contents everywhere, so that it is enough to carry out one of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from eindecomp.errors import PlanError
from eindecomp.tra.paging.schedule import ARENA, Action, Execute, Prefetch, Schedule, Touch, touches

Touched = Sequence[Sequence[Touch]]
"""What each action touches."""


class ScheduleError(PlanError):
    """A schedule would not compute what its workload says."""


def verify_schedule(schedule: Schedule) -> None:
    """Raise an error unless every task finds what it reads, in every order that waits allow."""
    touched = [touches(schedule.workload, action) for action in schedule.actions]
    _check_form(schedule, touched)
    _check_races(schedule, touched)
    _check_contents(schedule, touched)


def _check_form(schedule: Schedule, touched: Touched) -> None:
    """Everything in its bounds: waits come before, windows in the arena, blocks in the ring."""
    tasks = [action.task for action in schedule.actions if isinstance(action, Execute)]
    if tasks != list(range(len(schedule.workload.tasks))):
        raise ScheduleError(f"tasks run in the order {tasks}")
    for number, action in enumerate(schedule.actions):
        if any(not 0 <= wait < number for wait in action.waits):
            raise ScheduleError(f"action {number} waits for {action.waits}: not all before it")
        if isinstance(action, Prefetch) and not 0 <= action.block < schedule.staging.blocks:
            raise ScheduleError(f"action {number} reads into block {action.block}")
        for touch in touched[number]:
            limit = {ARENA: schedule.arena, "block": schedule.staging.block}
            most = limit.get(touch.memory.split()[0], touch.end)
            if touch.begin < 0 or touch.end > most:
                raise ScheduleError(
                    f"action {number} touches bytes {touch.begin} to {touch.end} of "
                    f"{touch.memory}, which has {most}"
                )


def _check_races(schedule: Schedule, touched: Touched) -> None:
    before = _before(schedule.actions)
    memories: dict[str, list[tuple[int, Touch]]] = defaultdict(list)
    for number, own in enumerate(touched):
        for touch in own:
            memories[touch.memory].append((number, touch))
    for touching in memories.values():
        for (one, first), (other, second) in _overlapping(touching):
            if not (first.writes or second.writes):
                continue
            low, high = sorted((one, other))
            if low == high or not before[high] >> low & 1:
                raise ScheduleError(
                    f"actions {low} and {high} race for {first.memory}: "
                    f"{schedule.actions[low]}, {schedule.actions[high]}"
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


def _overlapping(
    touched: Sequence[tuple[int, Touch]],
) -> Iterator[tuple[tuple[int, Touch], tuple[int, Touch]]]:
    """All pairs that share a byte."""
    open_: list[tuple[int, Touch]] = []
    for each in sorted(touched, key=lambda each: each[1].begin):
        if each[1].nbytes:
            open_ = [other for other in open_ if other[1].end > each[1].begin]
            yield from ((other, each) for other in open_)
            open_.append(each)


def _check_contents(schedule: Schedule, touched: Touched) -> None:
    """Carry out all actions, and look whether what each reads is there."""
    contents, tensors = _Contents(schedule), schedule.workload.tensors
    for number, own in enumerate(touched):
        for touch in own:
            if not touch.writes and not contents.has(touch):
                name = tensors[touch.tensor].name
                raise ScheduleError(f"action {number} does not find {name} at {touch}")
        for touch in own:
            if touch.writes:
                contents.write(touch)
    renewed = schedule.renewed
    for window in schedule.resident:
        number = renewed.get(window.tensor, window.tensor)
        if not contents.has(contents.whole(ARENA, number, window.offset)):
            raise ScheduleError(f"{tensors[number].name} is not in its window after the run")
    for tensor in tensors:
        must = tensor.made and tensor.is_result and tensor.number not in renewed.values()
        if must and not contents.has(contents.whole(f"host {tensor.number}", tensor.number)):
            raise ScheduleError(f"{tensor.name} must end on the host")


class _Contents:
    """What lies in each memory: parts of tensors that do not overlap."""

    def __init__(self, schedule: Schedule) -> None:
        """Before a run: what is on the host and in files, and what is resident."""
        self._tensors = schedule.workload.tensors
        self._memories: dict[str, list[Touch]] = defaultdict(list)
        for tensor in self._tensors:
            if not tensor.made:
                self.write(self.whole(f"{tensor.begins.value} {tensor.number}", tensor.number))
        for window in schedule.resident:
            tensor = self._tensors[window.tensor]
            if not tensor.may_stay:
                raise ScheduleError(f"{tensor.name} is resident, but differs from run to run")
            if not 0 <= window.offset <= schedule.arena - tensor.nbytes:
                raise ScheduleError(f"{tensor.name} is resident outside of the arena")
            self.write(self.whole(ARENA, window.tensor, window.offset))

    def whole(self, memory: str, number: int, offset: int = 0) -> Touch:
        """All of a tensor, in a memory."""
        return Touch(memory, number, offset, 0, self._tensors[number].nbytes, True)

    def write(self, new: Touch) -> None:
        """A part of a tensor comes to its place, over whatever was there."""
        kept: list[Touch] = []
        for old in self._memories[new.memory]:
            low, high = new.begin - old.offset, new.end - old.offset
            if old.start < min(old.stop, low):
                kept.append(old._replace(stop=min(old.stop, low)))
            if max(old.start, high) < old.stop:
                kept.append(old._replace(start=max(old.start, high)))
        self._memories[new.memory] = [*kept, new]

    def has(self, wanted: Touch) -> bool:
        """Whether all these bytes of a tensor are in their place."""
        there = sum(
            max(0, min(part.stop, wanted.stop) - max(part.start, wanted.start))
            for part in self._memories[wanted.memory]
            if (part.tensor, part.offset) == (wanted.tensor, wanted.offset)
        )
        return there == wanted.nbytes

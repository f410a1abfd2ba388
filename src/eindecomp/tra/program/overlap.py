"""When communication begins and is waited for, so that it runs beside kernels.

A step that communicates may begin as soon as what it sends is there, and need not be waited for
before something reads what it brings. Its target is then held longer, and so is its source; how
early and how late it goes is limited by the memory that the program takes anyway. Where several
could begin, they do so in the order of the program: links are left to what is needed first. All
devices find the same order, since only sizes that they share are looked at.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from eindecomp.tra.program.program import Program
from eindecomp.tra.program.steps import (
    AllGather,
    Communication,
    Compute,
    Free,
    Generate,
    Load,
    LocalSlice,
    Move,
    ReduceScatter,
    Step,
    used_by,
)


@dataclass(frozen=True, slots=True)
class Whole:
    """A step from its beginning to its end."""

    step: int


@dataclass(frozen=True, slots=True)
class Begin:
    """The communication of a step begins."""

    step: int


@dataclass(frozen=True, slots=True)
class End:
    """The communication of a step is waited for."""

    step: int


Action = Whole | Begin | End


def overlapped(program: Program) -> tuple[Action, ...]:
    """The steps of a program in order, with communication begun early and ended late."""
    steps = program.steps
    held, places = _Held(program), _Places(steps)
    computed = [0, *accumulate(map(_works, steps))]
    """How many steps compute before each place."""
    others: dict[int, tuple[int, int]] = {}
    """For each step that communicates: from when on it can begin, and where the next one may.

    The former is by how much was computed, the latter a place among the steps.
    """
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    moved: dict[int, int] = {}
    """Where frees that wait for an end go instead."""
    ended: dict[int, int] = {}
    """Where communication that is ended late ends."""
    for number, step in enumerate(steps):
        if not isinstance(step, Communication) or _is_local(step):
            continue
        is_in_place = isinstance(step, AllGather)
        source, into = (step.buffer,) * 2 if is_in_place else (step.source, step.into)
        ready = places.ready(source, number)
        ready = max(ready, ended.get(ready - 1, 0))
        first = held.earliest(into, ready, number)
        # No earlier step may wait there that could begin.
        earlier = (others[k] for k in range(first, number) if k in others)
        first = max([first, *(behind for done, behind in earlier if done <= computed[first])])
        held.hold(into, first, number)
        free = places.freed.get(source)
        last = held.latest(source, free, places.needed(into, number))
        is_apart = any(_works(steps[k]) for k in (*range(first, number), *range(number + 1, last)))
        others[number] = computed[ready], first if is_apart else number + 1
        if is_apart:
            begins.setdefault(first, []).append(number)
            ends.setdefault(last, []).append(number)
            ended[number] = last
            if free is not None and free < last:
                moved[free] = max(last, moved.get(free, 0))
    return tuple(_actions(steps, begins, ends, moved))


def _actions(
    steps: Sequence[Step],
    begins: dict[int, list[int]],
    ends: dict[int, list[int]],
    moved: dict[int, int],
) -> list[Action]:
    apart = {number for numbers in begins.values() for number in numbers}
    late: dict[int, list[int]] = {}
    for free, last in moved.items():
        late.setdefault(last, []).append(free)
    found: list[Action] = []
    for number in range(len(steps) + 1):
        found += [End(each) for each in ends.get(number, ())]
        found += [Whole(free) for free in late.get(number, ())]
        found += [Begin(each) for each in begins.get(number, ())]
        if number < len(steps) and number not in apart and number not in moved:
            found.append(Whole(number))
    return found


def _is_local(step: Step) -> bool:
    """Whether a move stays within each device."""
    return isinstance(step, Move) and isinstance(step.pattern, LocalSlice)


def _works(step: Step) -> bool:
    return isinstance(step, Compute | Generate)


class _Places:
    """Where buffers are written, used and freed."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._end = len(steps)
        self._written: dict[int, list[int]] = {}
        self._used: dict[int, list[int]] = {}
        self.freed: dict[int, int] = {}
        """The step that frees each buffer."""
        for number, step in enumerate(steps):
            for buffer in used_by(step):
                self._used.setdefault(buffer, []).append(number)
            match step:
                case Free():
                    self.freed[step.buffer] = number
                case AllGather():
                    self._written.setdefault(step.buffer, []).append(number)
                case _:
                    self._written.setdefault(step.into, []).append(number)

    def ready(self, source: int, number: int) -> int:
        """The first place before a step at which its source is there."""
        written = self._written.get(source, [])
        before = bisect_left(written, number)
        return written[before - 1] + 1 if before else 0

    def needed(self, into: int, number: int) -> int:
        """The first place after a step before which something uses what it brings."""
        used = self._used.get(into, [])
        after = bisect_right(used, number)
        return used[after] if after < len(used) else self._end


class _Held:
    """About how many bytes a device holds after each step, and the most."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._after: list[int] = []
        total = 0
        for step in program.steps:
            match step:
                case Load() | Generate() | Compute() | Move() | ReduceScatter():
                    total += self._bytes(step.into)
                case Free():
                    total -= self._bytes(step.buffer)
                case AllGather():
                    pass
            self._after.append(total)
        self._most = max(self._after, default=0)

    def _bytes(self, number: int) -> int:
        """A device's share of a buffer, as if all had the same."""
        buffer = self._program.buffers[number]
        return buffer.item * buffer.tiling.elements(self._program.mesh) // self._program.devices

    def earliest(self, into: int, ready: int, number: int) -> int:
        """From which step on a target can be held already."""
        if isinstance(self._program.steps[number], AllGather):
            return ready  # it is held anyway
        count, first = self._bytes(into), number
        while first > ready and self._after[first - 1] + count <= self._most:
            first -= 1
        return first

    def hold(self, into: int, first: int, number: int) -> None:
        """A target is held from a step on that comes before the one that needs it."""
        if not isinstance(self._program.steps[number], AllGather):
            count = self._bytes(into)
            for place in range(first, number):
                self._after[place] += count

    def latest(self, source: int, free: int | None, needed: int) -> int:
        """Up to which step a source can be held still that a step would free before."""
        if free is None or free >= needed:
            return needed
        count, last = self._bytes(source), free
        while last < needed and self._after[last] + count <= self._most:
            self._after[last] += count
            last += 1
        return last

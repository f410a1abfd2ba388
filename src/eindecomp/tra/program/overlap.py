"""When communication begins and is waited for, so that it runs beside kernels.

A step that communicates may begin as soon as what it sends is there, and need not be waited for
before something reads what it brings. Its target is then held longer, and so is its source; how
early and how late it goes is limited by the memory that the program takes anyway. Where several
could begin, they do so in the order of the program: links are left to what is needed first. All
devices find the same order, since only sizes that they share are looked at.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from eindecomp.tra.program import steps
from eindecomp.tra.program.program import Program


@dataclass(frozen=True, slots=True)
class StepPart:
    """A step from its beginning to its end, or one of the ends of its communication."""

    step: int
    begins: bool = True
    """Whether communication begins here."""
    ends: bool = True
    """Whether it is waited for here."""


def overlapped(program: Program) -> tuple[StepPart, ...]:
    """The steps of a program in order, with communication begun early and ended late."""
    held, places = _Held(program), _Places(program.steps)
    works = (isinstance(step, steps.Compute | steps.Generate) for step in program.steps)
    computed = [0, *accumulate(works)]
    """How many steps compute before each place."""
    others: dict[int, tuple[int, int]] = {}
    """By step that communicates: how many compute before it can begin, where the next one may."""
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    moved: dict[int, int] = {}
    """Where frees that wait for an end go instead."""
    ended: dict[int, int] = {}
    """Where communication that is ended late ends."""
    for number, step in enumerate(program.steps):
        is_local = isinstance(step, steps.Move) and isinstance(step.pattern, steps.LocalSlice)
        by_rows = getattr(step, "rows", None) is not None  # of an index that must be there, too
        if is_local or by_rows or not isinstance(step, steps.Communication):
            continue
        source, into = step.source, step.into
        ready = places.ready(source, number)
        ready = max(ready, ended.get(ready - 1, 0))
        first = held.earliest(into, ready, number)
        # No earlier step may wait there that could begin.
        earlier = (others[k] for k in range(first, number) if k in others)
        first = max([first, *(behind for done, behind in earlier if done <= computed[first])])
        held.hold(into, first, number)
        free = places.freed.get(source)
        last = held.latest(source, free, places.needed(into, number))
        is_apart = computed[first] < computed[last]  # something is computed beside it
        others[number] = computed[ready], first if is_apart else number + 1
        if is_apart:
            begins.setdefault(first, []).append(number)
            ends.setdefault(last, []).append(number)
            ended[number] = last
            if free is not None and free < last:
                moved[free] = max(last, moved.get(free, 0))
    return tuple(_in_order(len(program.steps), begins, ends, moved))


def _in_order(
    count: int, begins: dict[int, list[int]], ends: dict[int, list[int]], moved: dict[int, int]
) -> Iterator[StepPart]:
    """All steps, with the beginnings and ends of communication at the places chosen for them."""
    apart = {number for numbers in begins.values() for number in numbers}
    late: dict[int, list[int]] = {}
    for free, last in moved.items():
        late.setdefault(last, []).append(free)
    for number in range(count + 1):
        yield from (StepPart(each, begins=False) for each in ends.get(number, ()))
        yield from (StepPart(free) for free in late.get(number, ()))
        yield from (StepPart(each, ends=False) for each in begins.get(number, ()))
        if number < count and number not in apart and number not in moved:
            yield StepPart(number)


class _Places:
    """Where buffers are written, used and freed."""

    def __init__(self, every: Sequence[steps.Step]) -> None:
        self._end = len(every)
        self._written: dict[int, list[int]] = {}
        self._used: dict[int, list[int]] = {}
        self.freed: dict[int, int] = {}
        """The step that frees each buffer."""
        for number, step in enumerate(every):
            for buffer in steps.used_by(step):
                self._used.setdefault(buffer, []).append(number)
            if isinstance(step, steps.Free):
                self.freed[step.buffer] = number
            else:
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
            if isinstance(step, steps.Free):
                total -= self._bytes(step.buffer)
            elif not isinstance(step, steps.AllGather):
                total += self._bytes(step.into)
            self._after.append(total)
        self._most = max(self._after, default=0)

    def _bytes(self, number: int) -> int:
        """A device's share of a buffer, as if all had the same."""
        buffer = self._program.buffers[number]
        return buffer.item * buffer.tiling.elements(self._program.mesh) // self._program.devices

    def earliest(self, into: int, ready: int, number: int) -> int:
        """The step from which on there is room for a target."""
        if isinstance(self._program.steps[number], steps.AllGather):
            return ready  # it is held anyway
        count, first = self._bytes(into), number
        while first > ready and self._after[first - 1] + count <= self._most:
            first -= 1
        return first

    def hold(self, into: int, first: int, number: int) -> None:
        """Count a target as held from step `first` on, before the step that fills it."""
        if not isinstance(self._program.steps[number], steps.AllGather):
            count = self._bytes(into)
            for place in range(first, number):
                self._after[place] += count

    def latest(self, source: int, free: int | None, needed: int) -> int:
        """The step up to which a source can be held that another step would free earlier."""
        if free is None or free >= needed:
            return needed
        count, last = self._bytes(source), free
        while last < needed and self._after[last] + count <= self._most:
            self._after[last] += count
            last += 1
        return last

"""When communication begins and is waited for, so that it runs beside kernels.

A step that communicates may begin as soon as what it sends is there, and need not be waited for
before something reads what it brings. Its target is then held longer, and so is its source; how
early and how late it goes is limited by the memory that the program takes anyway. All devices find
the same order, since only sizes that they share are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.tra.program.make import used_by
from eindecomp.tra.program.patterns import LocalSlice
from eindecomp.tra.program.steps import (
    AllGather,
    Compute,
    Free,
    Generate,
    Load,
    Move,
    ReduceScatter,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.steps import Step

Communication = Move | ReduceScatter | AllGather


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
    held = _Held(program)
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    moved: dict[int, int] = {}
    """Where frees that wait for an end go instead."""
    ended: dict[int, int] = {}
    """Where communication that is ended late ends."""
    for number, step in enumerate(steps):
        if not _communicates(step):
            continue
        source, into = _buffers(step)
        ready = _ready(steps, source, number)
        ready = max(ready, ended.get(ready - 1, 0))
        first = held.earliest(into, ready, number)
        last, free = held.latest(source, number, _needed(steps, into, number))
        if any(_works(steps[k]) for k in (*range(first, number), *range(number + 1, last))):
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


def _communicates(step: Step) -> bool:
    if isinstance(step, Move):
        return not isinstance(step.pattern, LocalSlice)
    return isinstance(step, ReduceScatter | AllGather)


def _works(step: Step) -> bool:
    return isinstance(step, Compute | Generate)


def _buffers(step: Step) -> tuple[int, int]:
    """What a step sends and what it completes."""
    match step:
        case Move() | ReduceScatter():
            return step.source, step.into
        case AllGather():
            return step.buffer, step.buffer
        case _:
            raise TypeError(step)


def _ready(steps: Sequence[Step], source: int, number: int) -> int:
    """The first place before a step at which its source is there."""
    for k in range(number - 1, -1, -1):
        step = steps[k]
        if not isinstance(step, Free) and source in _written(step):
            return k + 1
    return 0


def _written(step: Step) -> tuple[int, ...]:
    match step:
        case AllGather():
            return (step.buffer,)
        case Free():
            return ()
        case _:
            return (step.into,)


def _needed(steps: Sequence[Step], into: int, number: int) -> int:
    """The first place after a step before which something uses what it brings."""
    for k in range(number + 1, len(steps)):
        if into in used_by(steps[k]):
            return k
    return len(steps)


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
            self._after[first] += count
        return first

    def latest(self, source: int, number: int, needed: int) -> tuple[int, int | None]:
        """Up to which step a source can be held still, and the step that would free it."""
        steps = self._program.steps
        free = next((k for k in range(number, len(steps)) if steps[k] == Free(source)), None)
        if free is None or free >= needed:
            return needed, free
        count, last = self._bytes(source), free
        while last < needed and self._after[last] + count <= self._most:
            self._after[last] += count
            last += 1
        return last, free

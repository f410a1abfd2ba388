"""Steps as messages name them, and as the watch follows them on a device that runs behind.

On a GPU the end of communication only makes the device wait: the host goes on to queue what comes
next. So that a rank is seen to wait for others, or to compute, as its device does, marks are left
in the device's queue around whatever waits. The host follows them where it waits for the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.engines.spmd.watch import NOWHERE
from eindecomp.errors import EinDecompError, RunError
from eindecomp.graph.ops import Gather, ScatterAdd
from eindecomp.layout.boxes import show_box
from eindecomp.tra.program.steps import (
    AllGather,
    Compute,
    Free,
    Generate,
    Load,
    Move,
    ReduceScatter,
    kind_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.engines.spmd.protocols import Mark, Transport
    from eindecomp.engines.spmd.rank_memory import Do, RankMemory
    from eindecomp.engines.spmd.watch import Watch
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.row import DeviceRow

    Call = tuple[int, Do, bool]
    """A step, what is done in it, and whether others may have to be waited for."""


def in_words(program: Program, step: int) -> str:
    """A step as messages name it."""
    if not 0 <= step < len(program.steps):
        return "counting what all ranks took"
    each = program.steps[step]
    match each:
        case Compute() | ReduceScatter() | AllGather():
            return f"{kind_of(each)} of {program.graph[each.vertex]}"
        case Move():
            source = program.buffers[each.source].tensor
            return f"{each.pattern} of {source} for {program.graph[each.vertex]}"
        case Free():
            return f"free of {program.buffers[each.buffer].tensor}"
        case Load() | Generate():
            return f"{kind_of(each)} of {program.buffers[each.into].tensor}"


def named(
    error: BaseException, step: int, program: Program, row: DeviceRow, transport: Transport
) -> BaseException:
    """What went wrong in a step, with its vertex, tile and rank."""
    if step == NOWHERE or isinstance(error, RunError):
        return error
    ours = isinstance(error, EinDecompError)
    why = str(error) if ours else f"{type(error).__name__}: {error}"
    where = f"{in_words(program, step)} on rank {row.device}"
    if step < len(row.steps):
        tile = show_box(row.steps[step].box)
        where = f"{in_words(program, step)}, tile {tile} on rank {row.device}"
    gone = [] if ours else transport.lost()
    if gone:
        why += f"; rank {', '.join(map(str, gone))} is gone"
    return RunError(f"{where}, step {step}: {why}")


# Devices that run behind


class Pace:
    """The marks that a device has not been followed to yet."""

    def __init__(self, watch: Watch, mark: Callable[[], Mark | None]) -> None:
        self._watch, self._mark = watch, mark
        self._marks: list[tuple[int, bool, Mark | None]] = []

    def paced(self, calls: Sequence[Call], program: Program) -> list[Call]:
        """Calls that leave marks where others are waited for, and follow them where they look."""
        found: list[Call] = []
        for step, do, waits in calls:
            if waits:
                do = self._marked(step, do)
            elif _looks(program, step):
                do = self._followed(do)
            found.append((step, do, waits))
        return found

    def _marked(self, step: int, do: Do) -> Do:
        def marked(memory: RankMemory) -> None:
            self._marks.append((step, False, self._mark()))
            do(memory)
            self._marks.append((step, True, self._mark()))

        return marked

    def _followed(self, do: Do) -> Do:
        def followed(memory: RankMemory) -> None:
            self.follow()
            do(memory)

        return followed

    def follow(self) -> None:
        """Wait for all that the device was told to wait for."""
        watch = self._watch
        here = watch.step, watch.waits
        for step, waits, mark in self._marks:
            watch.step, watch.waits = step, waits
            if mark is not None:
                mark.synchronize()
        self.forget()
        watch.step, watch.waits = here

    def forget(self) -> None:
        """Begin anew, as after a run that failed."""
        self._marks.clear()


def _looks(program: Program, number: int) -> bool:
    """Whether the host has to wait in a step: it copies from its memory, or checks indices."""
    step = program.steps[number]
    is_lookup = isinstance(step, Compute) and isinstance(
        program.graph[step.vertex].op, Gather | ScatterAdd
    )
    return is_lookup or isinstance(step, Load)

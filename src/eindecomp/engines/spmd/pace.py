"""How far a device has come that runs behind the host, told to the watch as if the host waited.

On a GPU the end of communication only makes the device wait: the host goes on to queue what comes
next. So that a rank is seen to wait for others, or to compute, as its device does, marks are left
in the device's queue around whatever waits. The host follows them where it waits for the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from eindecomp.graph.ops import Gather, ScatterAdd
from eindecomp.tra.program.steps import Compute, Load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.engines.spmd.rank_memory import RankMemory
    from eindecomp.engines.spmd.row_places import Do
    from eindecomp.engines.spmd.watch import Watch
    from eindecomp.tra.program.program import Program

    Call = tuple[int, Do, bool]


class Mark(Protocol):
    """A place in the device's queue."""

    def synchronize(self) -> None:
        """Wait until the device has come there."""
        ...


class Pace:
    """The marks that a device has not been followed to yet."""

    def __init__(self, watch: Watch, mark: Callable[[], Mark]) -> None:
        self._watch, self._mark = watch, mark
        self._marks: list[tuple[int, bool, Mark]] = []

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

"""Tells a listener what the threads of a run do."""

from __future__ import annotations

from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING

from eindecomp.engines.result import (
    BytesMoved,
    KernelCompiled,
    RunStarted,
    TaskFinished,
    TaskStarted,
    TensorFreed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from eindecomp.engines.result import Event
    from eindecomp.engines.threads.schedule import KernelCall, Schedule
    from eindecomp.kernels.compilations import Compilation


class RunReport:
    """The events of one run, told one by one; what the listener raises stops the run."""

    def __init__(self, schedule: Schedule, on_event: Callable[[Event], None]) -> None:
        self._moves = schedule.moves_by_call
        self._on_event, self._lock = on_event, Lock()
        self._start = perf_counter()
        self._silent = False
        self._tell(RunStarted(schedule.tasks))

    def _tell(self, event: Event) -> None:
        with self._lock:
            if not self._silent:
                self._on_event(event)

    def silence(self) -> None:
        """Tell nothing more, as the run is over for whoever listens."""
        with self._lock:
            self._silent = True

    def started(self, number: int, call: KernelCall, worker: int) -> float:
        """Tell of a call that a worker begins with, and of what moves for it; gives the time."""
        start = perf_counter() - self._start
        for move in self._moves.get(number, ()):
            self._tell(BytesMoved(move.vertex, move.kind, move.count, start))
        for device in call.devices:
            self._tell(TaskStarted(call.vertex, call.kind, device, worker, start))
        return start

    def finished(
        self, call: KernelCall, worker: int, start: float, compiled: list[Compilation]
    ) -> None:
        """Tell of a call that was carried out, and of what was compiled for it."""
        end = perf_counter() - self._start
        while compiled:
            what, *times = compiled.pop(0)
            begun, ended = (time - self._start for time in times)
            self._tell(KernelCompiled(what, call.devices[0], worker, begun, ended))
        for device in call.devices:
            self._tell(TaskFinished(call.vertex, call.kind, device, worker, start, end))

    def freed(self, tensor: str, count: int) -> None:
        """Tell that an array was dropped."""
        self._tell(TensorFreed(tensor, count))

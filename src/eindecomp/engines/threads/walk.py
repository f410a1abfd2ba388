"""One run: its steps one after another, the calls of each step on all cores.

The calling thread computes too. Helpers join it if they are free, and it waits for none that has
not joined, so runs may start within other runs and beside them. During a long run the main thread
only waits, since Python handles Ctrl-C there and not inside a kernel. When interrupted it returns
at once; kernels at work finish on arrays that nobody else refers to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Event, Lock, Thread, current_thread, get_ident, main_thread
from time import perf_counter

import numpy as np

from eindecomp.engines.result import (
    BytesMoved,
    KernelCompiled,
    Listener,
    RunStarted,
    TaskFinished,
    TaskStarted,
    TensorFreed,
    failed_at,
)
from eindecomp.engines.result import Event as RunEvent
from eindecomp.engines.threads.memory import Key, Memory
from eindecomp.engines.threads.schedule import Bound, CallSchedule, KernelCall, Step
from eindecomp.kernels.cache import record_compilations
from eindecomp.kernels.cpu.fork_join import HELPERS
from eindecomp.kernels.cpu.products.blas_libraries import GATE, CallMark
from eindecomp.tra.program.program import Program
from eindecomp.tra.program.steps import Compute, kind_of

_PAUSE = 0.05  # seconds between two looks for interrupts
_LONG = 0.25  # seconds from which a person may want to interrupt a run


class RunReport:
    """Reports the events of a run one at a time; what the listener raises stops the run."""

    def __init__(self, schedule: CallSchedule, program: Program, on_event: Listener) -> None:
        self._moves: dict[Key, list[BytesMoved]] = defaultdict(list)
        """What is to be told when a vertex is first computed, or an input first read."""
        for step, count in program.moving:
            self._moves[step.vertex].append(BytesMoved(step.vertex, kind_of(step), count, 0.0))
        computed = (step for step in program.steps if isinstance(step, Compute))
        self._whole = {program.buffers[step.into].tensor: step.vertex for step in computed}
        """The vertex whose parts a tensor holds, or that it is."""
        self._on_event, self._lock = on_event, Lock()
        self._start = perf_counter()
        self._silent = False
        self._workers: dict[int, int] = {}
        """The number of each thread that has taken part."""
        self._tell(RunStarted(schedule.tasks))

    def _tell(self, event: RunEvent) -> None:
        with self._lock:
            if not self._silent:
                self._on_event(event)

    def silence(self) -> None:
        """Report nothing more: for the listener the run is over."""
        with self._lock:
            self._silent = True

    def task(self, call: KernelCall, compute: Callable[[], None]) -> None:
        """Carry out a call; reports it, the moves before it and the kernels compiled in it."""
        with self._lock:
            worker = self._workers.setdefault(get_ident(), len(self._workers))
        start = perf_counter() - self._start
        for key in (self._whole.get(call.vertex, call.vertex), *call.uses):
            for move in self._moves.pop(key, ()):
                self._tell(replace(move, time=start))
        for device in call.devices:
            self._tell(TaskStarted(call.vertex, call.kind, device, worker, start))
        with record_compilations() as compiled:
            compute()
        end = perf_counter() - self._start
        for what, *times in compiled:
            begun, ended = (time - self._start for time in times)
            self._tell(KernelCompiled(what, call.devices[0], worker, begun, ended))
        for device in call.devices:
            self._tell(TaskFinished(call.vertex, call.kind, device, worker, start, end))

    def freed(self, tensor: str, count: int) -> None:
        """Report that an array was dropped."""
        self._tell(TensorFreed(tensor, count))


class Walk:
    """Carries out the steps of a schedule, on at most `workers` threads."""

    def __init__(
        self, schedule: CallSchedule, memory: Memory, workers: int | None, report: RunReport | None
    ) -> None:
        self._schedule, self._memory = schedule, memory
        self._workers, self._report = workers, report
        self._stopped = False

    def run(self) -> None:
        """Carry out all steps; raises what stopped them."""
        is_long = self._schedule.seconds >= _LONG
        try:
            if is_long and current_thread() is main_thread():
                self._run_apart()
            else:
                self._run()
        except BaseException:
            self._memory.clear()
            raise

    def _run_apart(self) -> None:
        """Carry out the steps on another thread while this one handles interrupts."""
        over = Event()
        failed: list[BaseException] = []

        def walk() -> None:
            try:
                self._run()
            except BaseException as error:
                failed.append(error)
            over.set()

        try:
            Thread(target=walk, name="eindecomp-run", daemon=True).start()
            while not over.wait(_PAUSE):
                pass
        except BaseException:
            self._stop()
            raise
        try:
            for error in failed:
                raise error
        finally:
            failed.clear()  # the traceback has this frame

    def _stop(self) -> None:
        """Begin no further call and report no further event."""
        self._stopped = True
        if self._report is not None:
            self._report.silence()

    def _run(self) -> None:
        memory, mark = self._memory, GATE.join()
        try:
            # Both are settings of a thread; a run within this one records its own compilations.
            with np.errstate(all="ignore"), record_compilations():
                for step in self._schedule.steps:
                    if self._stopped:
                        return
                    memory.make(step.makes)
                    GATE.enter(mark)
                    self._carry_out(step, mark)
                    mark.at_work = False
                    for tensor, nbytes in memory.drop(step.drops):
                        if self._report is not None:
                            self._report.freed(tensor, nbytes)
        finally:
            GATE.leave(mark)

    def _carry_out(self, step: Step, mark: CallMark) -> None:
        if not step.is_shared(self._workers):
            for number in range(len(step.calls)):
                self._call(step, number)
            return
        is_plain = self._report is None and self._workers is None
        # All calls side by side hold all their tiles: what is stored is read call by call.
        if step.together is not None and is_plain and not self._memory.stored:
            self._compute(step.together, step.calls[0])
            return
        mark.at_work = False  # each job has a mark of its own
        jobs = [partial(self._call_beside, step, number) for number in range(len(step.calls))]
        HELPERS.run(jobs, self._workers)

    def _call_beside(self, step: Step, number: int) -> None:
        """Carry out one call on any thread."""
        mark = GATE.join()
        try:
            GATE.enter(mark)
            self._call(step, number)
        finally:
            GATE.leave(mark)

    def _call(self, step: Step, number: int) -> None:
        """Carry out one call, and report it if there is a listener."""
        if self._stopped:
            return
        call, run, report = step.calls[number], step.run[number], self._report
        try:
            if report is None:
                self._compute(run, call)
                return
            report.task(call, partial(self._compute, run, call))
        except Exception:
            self._stopped = True
            raise
        except BaseException:
            self._stop()
            raise

    def _compute(self, run: Bound, call: KernelCall) -> None:
        """Run a kernel; its errors are raised again with the vertex and the tile."""
        try:
            run(self._memory)
        except Exception as error:
            vertex = self._schedule.graph[call.vertex]
            raise failed_at(vertex, call.box, call.devices[0], error) from error

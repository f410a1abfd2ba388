"""Threads that stay, and carrying out a program's calls on them.

Workers take the calls in order, by a counter that needs no lock; whoever takes a call waits until
those before it that it needs are done. As calls come after what they need, somebody always works.
"""

from __future__ import annotations

import os
from itertools import count
from queue import SimpleQueue
from threading import Condition, Thread
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.errors import EinDecompError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable

    from eindecomp.engines.threads.memory import Memory
    from eindecomp.engines.threads.program import Call, Program


class Job:
    """One run of a program."""

    def __init__(
        self,
        program: Program,
        memory: Memory,
        on_call: Callable[[Call, float, float], None] | None,
    ) -> None:
        self.program, self.memory, self.on_call = program, memory, on_call
        self.start = perf_counter()
        self.error: BaseException | None = None
        self._done = bytearray(len(program.calls))
        self._take = count().__next__
        self._stopped = False
        self._waiting = 0
        self._changed = Condition()

    def work(self) -> None:
        """Carry out calls until none is left, one fails, or the run is stopped."""
        with np.errstate(all="ignore"):  # which each thread has for itself
            self._work()

    def _work(self) -> None:
        calls, done, memory, take = self.program.calls, self._done, self.memory, self._take
        while not self._stopped:
            number = take()
            if number >= len(calls):
                return
            call = calls[number]
            for other in call.after:
                if not done[other] and not self._wait(other):
                    return
            try:
                self._carry_out(call, memory)
            except BaseException as error:
                self.stop(_named(error, call, self.program))
                return
            done[number] = 1
            if self._waiting:
                with self._changed:
                    self._changed.notify_all()

    def _carry_out(self, call: Call, memory: Memory) -> None:
        if self.on_call is None:
            call.run(memory)
        else:
            start = perf_counter()
            call.run(memory)
            self.on_call(call, start - self.start, perf_counter() - self.start)
        for key in call.uses:
            memory.done(key)

    def _wait(self, number: int) -> bool:
        """Wait until a call is done; False if the run was stopped."""
        with self._changed:
            # Counted before looking: who finishes it looks at the count after saying so.
            self._waiting += 1
            while not self._done[number] and not self._stopped:
                self._changed.wait()
            self._waiting -= 1
        return not self._stopped

    def stop(self, error: BaseException) -> None:
        """Let no further call start; the first error is the one that is reported."""
        with self._changed:
            self.error = self.error or error
            self._stopped = True
            self._changed.notify_all()


def _named(error: BaseException, call: Call, program: Program) -> BaseException:
    """What a kernel raised, with the vertex and the tile it was at."""
    if not isinstance(error, Exception):
        return error
    tile = ", ".join(f"{low}:{high}" for low, high in call.box)
    where = f"{program.graph[call.vertex]}, tile [{tile}] on device {call.device}"
    reason = str(error) if isinstance(error, EinDecompError) else f"{type(error).__name__}: {error}"
    named = RunError(f"{where}: {reason}")
    named.__cause__ = error
    return named


class Workers:
    """Threads that wait for jobs; the thread that asks for a job works along."""

    def __init__(self) -> None:
        self._queues: list[SimpleQueue[tuple[Job, SimpleQueue[None]]]] = []
        self._process = os.getpid()

    def run(self, job: Job, workers: int) -> None:
        """Carry a job out on so many threads; raises what stopped it."""
        finished: SimpleQueue[None] = SimpleQueue()
        helpers = min(workers, len(job.program.calls)) - 1
        for queue in self._reserve(helpers):
            queue.put((job, finished))
        try:
            job.work()
            for _ in range(max(helpers, 0)):
                finished.get()
        except BaseException as error:  # an interrupt reaches this thread alone
            job.stop(error)
            for _ in range(max(helpers, 0)):
                finished.get()
        if job.error is not None:
            raise job.error

    def _reserve(self, helpers: int) -> list[SimpleQueue[tuple[Job, SimpleQueue[None]]]]:
        if os.getpid() != self._process:  # threads do not survive a fork
            self._queues, self._process = [], os.getpid()
        while len(self._queues) < helpers:
            queue: SimpleQueue[tuple[Job, SimpleQueue[None]]] = SimpleQueue()
            number = len(self._queues) + 1
            Thread(target=_serve, args=(queue,), name=f"eindecomp-{number}", daemon=True).start()
            self._queues.append(queue)
        return self._queues[: max(helpers, 0)]


def _serve(queue: SimpleQueue[tuple[Job, SimpleQueue[None]]]) -> None:
    while True:
        job, finished = queue.get()
        try:
            job.work()
        finally:
            finished.put(None)
            del job


WORKERS = Workers()

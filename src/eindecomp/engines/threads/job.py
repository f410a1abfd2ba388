"""One run of a schedule: threads take its calls in order, by a counter that needs no lock.

Whoever takes a call waits until those before it that it needs are done. As calls come after what
they need, somebody always works, however many threads there are.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from itertools import count
from threading import Condition
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.engines.threads.forking import GATE
from eindecomp.errors import EinDecompError, RunError
from eindecomp.kernels.compilations import record_compilations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.engines.threads.bind import Bound
    from eindecomp.engines.threads.call import Call
    from eindecomp.engines.threads.forking import Mark
    from eindecomp.engines.threads.memory import Memory
    from eindecomp.engines.threads.report import RunReport
    from eindecomp.engines.threads.schedule import Schedule
    from eindecomp.kernels.compilations import Compilation


class Job:
    """The calls of a schedule that are done, and what stopped them.

    `hold` is what every thread holds for as long as it works.
    """

    def __init__(
        self,
        schedule: Schedule,
        bound: Sequence[Bound],
        memory: Memory,
        report: RunReport | None,
        hold: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.schedule, self.memory, self.report = schedule, memory, report
        self._bound = bound
        self.error: BaseException | None = None
        self.interrupted = False
        """Whether it was stopped from outside, so that nobody waits for what is at work."""
        self._hold = hold
        self._done = bytearray(len(schedule.calls))
        self._take = count().__next__
        self._join = count().__next__
        self._stopped = False
        self._waiting = 0
        self._changed = Condition()

    def work(self) -> None:
        """Carry out calls until none is left, one fails, or the run is stopped."""
        mark = None
        try:
            mark = GATE.join()
            # These belong to a thread; what a run within this one compiles is recorded there.
            with self._hold(), np.errstate(all="ignore"), record_compilations() as compiled:
                self._work(self._join(), mark, compiled)
        except BaseException as error:
            self.stop(error)
        finally:
            if mark is not None:
                GATE.leave(mark)

    def _work(self, worker: int, mark: Mark, compiled: list[Compilation]) -> None:
        calls, done, take = self.schedule.calls, self._done, self._take
        memory, report = self.memory, self.report
        while not self._stopped:
            number = take()
            if number >= len(calls):
                return
            call = calls[number]
            for other in call.after:
                if not done[other] and not self._wait(other):
                    return
            if report is None:
                self._run(number, call, mark)
            else:
                start = report.started(number, call, worker)
                self._run(number, call, mark)
                report.finished(call, worker, start, compiled)
            if self._stopped:  # and maybe cleared
                return
            for key in call.uses:
                memory.done(key)
            done[number] = 1
            if self._waiting:
                with self._changed:
                    self._changed.notify_all()

    def _run(self, number: int, call: Call, mark: Mark) -> None:
        GATE.enter(mark)
        try:
            self._bound[number](self.memory)
        except Exception as error:
            raise named(error, call, self.schedule) from error
        finally:
            mark.at_work = False

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
            if not self._stopped:
                self.error, self.interrupted = error, not isinstance(error, Exception)
            self._stopped = True
            self._changed.notify_all()
        if self.interrupted and self.report is not None:
            self.report.silence()

    def check(self) -> None:
        """Raise what stopped the run, and let go of its arrays."""
        # The traceback keeps the frames and with them this job: were the error kept by either,
        # nothing would be freed until somebody looked for cycles.
        error, self.error = self.error, None
        if error is None:
            return
        self.memory.clear()
        try:
            raise error
        finally:
            del error


def named(error: Exception, call: Call, schedule: Schedule) -> RunError:
    """What a kernel raised, with the vertex and the tile it was at."""
    tile = ", ".join(f"{low}:{high}" for low, high in call.box)
    where = f"{schedule.graph[call.vertex]}, tile [{tile}] on device {call.devices[0]}"
    reason = str(error) if isinstance(error, EinDecompError) else f"{type(error).__name__}: {error}"
    return RunError(f"{where}: {reason}")

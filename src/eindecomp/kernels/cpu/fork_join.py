"""Doing independent jobs on all cores at once, in microseconds and without Python's lock.

Helpers are threads that never come back from compiled code: each waits to be called, spinning at
first, then asleep. Whoever has jobs calls them, takes jobs itself by a counter that all share, and
waits for those who came. A helper that has not woken up by then is not waited for.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from contextlib import suppress
from functools import cache
from threading import Lock, Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eindecomp.kernels.cache import load, store
from eindecomp.kernels.cores import cores
from eindecomp.kernels.cpu.compiling.compile import versions
from eindecomp.kernels.cpu.compiling.fork_join_code import (
    CONFIG,
    HEADER,
    JOIN,
    ROUSE,
    SEMAPHORE,
    SERVE,
    SLOT,
    SPIN,
    fork_join_code,
)
from eindecomp.kernels.cpu.compiling.machine_code import link, machine_code, processor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SPIN = 1e-4
"""Seconds that a helper spins: about as long as a run takes from one large vertex to the next."""
_MOST = 256
"""Jobs that are handed over at once."""
_PROBE = 2000  # turns of spinning to measure how long one takes
_SYSTEM = ("sem_wait", "sem_post", "sched_yield")
_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_int64)


class CompiledJob(NamedTuple):
    """Machine code to be run, by the function that does so and by its address."""

    function: Callable[[int], None]
    code: int
    argument: int


if TYPE_CHECKING:
    Job = CompiledJob | Callable[[], None]


class Helpers:
    """Threads that help one caller at a time; there are none where the system has no semaphores."""

    def __init__(self) -> None:
        self._renew()
        if hasattr(os, "register_at_fork"):  # threads do not survive one
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._busy = Lock()
        self._crew: _Crew | None = None
        self._tried = False

    def run(self, jobs: Sequence[Job]) -> None:
        """Do all jobs, in any order; raises what one of them raises."""
        crew = self._called(len(jobs))
        if crew is None:
            for job in jobs:
                if isinstance(job, CompiledJob):
                    job.function(job.argument)
                else:
                    job()
            return
        try:
            crew.run(jobs)
        finally:
            self._busy.release()

    def rouse(self) -> None:
        """Wake up whoever sleeps, for jobs that are about to come."""
        crew = self._called(2)
        if crew is not None:
            crew.rouse()
            self._busy.release()

    def _called(self, jobs: int) -> _Crew | None:
        """The crew, for this thread alone; None if it is not to be had or not worth it."""
        if not 1 < jobs <= _MOST or not self._busy.acquire(blocking=False):
            return None
        if not self._tried:
            self._tried = True
            if cores() > 1:
                with suppress(OSError, RuntimeError, AttributeError, TypeError):
                    self._crew = _Crew(cores() - 1)
        if self._crew is None:
            self._busy.release()
        return self._crew


class _Crew:
    """Helpers, and the memory that they and their caller share."""

    def __init__(self, helpers: int) -> None:
        system: Any = ctypes.CDLL(None)
        addresses = [_code(getattr(system, name)) for name in _SYSTEM]
        self._call = _compiled()
        # What different threads write is in different lines of the cache.
        self._memory = np.zeros(HEADER + helpers * SLOT + 16, np.int64)
        # Helpers look at it for as long as the process lives, even while Python shuts down.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))
        skipped = -_address(self._memory) % 128 // 8
        self._words = self._memory[skipped:]
        start = _address(self._words)
        self._jobs = np.zeros((_MOST, 2), np.int64)
        self._words[CONFIG : CONFIG + 6] = [0, _address(self._jobs), helpers, *addresses]
        requests = [(JOIN, start), (ROUSE, start), (SPIN, start)]
        slots = [HEADER + k * SLOT for k in range(helpers)]
        requests += [(SERVE, start + 8 * slot) for slot in slots]
        self._requests = np.array(requests, np.int64)
        first = _address(self._requests)
        self._join, self._rouse, spin, *serve = (first + 16 * k for k in range(len(requests)))
        self._words[CONFIG + 6] = self._turns(spin)
        for slot in slots:
            self._words[slot + 2] = start
            semaphore = ctypes.c_void_p(start + 8 * (slot + SEMAPHORE))
            if system.sem_init(semaphore, 0, 0):
                raise OSError("the system has no semaphores of this kind")
        for k, request in enumerate(serve):
            name = f"eindecomp-helper-{k + 1}"
            Thread(target=self._call, args=(request,), name=name, daemon=True).start()

    def _turns(self, spin: int) -> int:
        """How often to look before falling asleep."""
        self._words[CONFIG + 6] = _PROBE
        start = perf_counter()
        self._call(spin)
        return max(1, int(_SPIN * _PROBE / (perf_counter() - start)))

    def run(self, jobs: Sequence[Job]) -> None:
        """Do jobs with whoever comes."""
        failed: list[BaseException] = []
        callbacks: list[Any] = []  # nobody else keeps them
        pairs: list[tuple[int, int]] = []
        for job in jobs:
            if isinstance(job, CompiledJob):
                pairs.append((job.code, job.argument))
            else:
                callbacks.append(_callback(job, failed))
                pairs.append((_code(callbacks[-1]), 0))
        self._jobs[: len(jobs)] = pairs
        self._words[CONFIG] = len(jobs)
        self._call(self._join)
        if failed:
            raise failed[0]

    def rouse(self) -> None:
        """Wake up whoever sleeps."""
        self._call(self._rouse)


def _callback(job: Callable[[], None], failed: list[BaseException]) -> Any:
    """A function for compiled code that calls another, under Python's lock."""

    def run(_: int) -> None:
        try:
            with np.errstate(all="ignore"):  # belongs to a thread
                job()
        except BaseException as error:
            failed.append(error)

    return _FUNCTION(run)


def _code(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _address(array: np.ndarray[Any, Any]) -> int:
    return array.__array_interface__["data"][0]


@cache
def _compiled() -> Callable[[int], None]:
    key = versions() + "fork_join"
    name = f"fork_join_{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    # Whatever is wrong with the file, compiling again repairs it.
    with suppress(Exception):
        if (code := load(key)) is not None:
            return link(code, name)
    code = machine_code(fork_join_code(processor()[0], name))
    store(key, code)
    return link(code, name)


HELPERS = Helpers()

"""Doing independent jobs on all cores at once, in microseconds and without Python's lock.

Helpers are threads that never come back from compiled code: each waits to be called, spinning at
first, then asleep. Whoever has jobs calls them, takes jobs itself by a counter that all share, and
waits for those who came. A helper that has not woken up by then is not waited for.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from contextlib import suppress
from functools import cache
from threading import Lock, Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eindecomp.kernels.address import address
from eindecomp.kernels.cache import load, store
from eindecomp.kernels.cores import cores
from eindecomp.kernels.cpu.compiling.compile import versions
from eindecomp.kernels.cpu.compiling.fork_join_code import (
    CONFIG,
    CROWDED,
    HEADER,
    JOIN,
    REPEAT,
    ROUSE,
    SEMAPHORE,
    SERVE,
    SLOT,
    SPIN,
    SPINS,
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


class RepeatedJob(NamedTuple):
    """Machine code over arrays: its argument without addresses, and where those belong."""

    code: int
    integers: np.ndarray[Any, np.dtype[np.int64]]
    addresses: Sequence[tuple[int, int, int]]
    """A place in the argument, the number of an array, and the bytes from its start."""
    scratch: int
    """Bytes of memory to work in, whose address belongs to the last place of the argument."""
    scratch_at: int
    of: object
    """What has the machine code, which goes with it."""


class Repetition:
    """Groups of jobs on arrays of known layouts, to be done again and again on other arrays.

    The jobs of a group are done at once, those of the next one after them. Arrays are named by
    their objects: compiled code finds their data, which would take Python as long as a product.
    """

    __slots__ = ("_kept", "address", "objects", "request")

    def __init__(self, groups: Sequence[Sequence[RepeatedJob]], arrays: int) -> None:
        self.objects = (ctypes.c_int64 * arrays)()
        start = ctypes.addressof(self.objects)
        kept: list[Any] = []
        places: list[tuple[int, int, int]] = []
        listed: list[tuple[int, int]] = []
        for group in groups:
            jobs: list[tuple[int, int]] = []
            for job in group:
                own = job.integers.copy()
                at = address(own)
                places += [(at + 8 * p, start + 8 * n, by) for p, n, by in job.addresses]
                if job.scratch:
                    kept.append(np.empty(job.scratch, np.uint8))
                    own[job.scratch_at] = address(kept[-1])
                jobs.append((job.code, at))
                kept += own, job.of
            kept.append(np.array(jobs, np.int64))
            listed.append((len(jobs), address(kept[-1])))
        kept += [np.array(places, np.int64), np.array(listed, np.int64)]
        table = [len(places), address(kept[-2]), len(listed), address(kept[-1]), 8 * data_word()]
        kept.append(np.array(table, np.int64))
        self.request = np.array([REPEAT, 0, address(kept[-1])], np.int64)
        self.address = address(self.request)
        self._kept = kept


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

    def repeat(self, repetition: Repetition, arrays: Sequence[Any]) -> bool:
        """Do groups of jobs for arrays; False if this cannot be done just now."""
        crew = self._called(2)
        if crew is None:
            return False
        try:
            crew.repeat(repetition, arrays)
        finally:
            self._busy.release()
        return True

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
            with suppress(OSError, RuntimeError, AttributeError, TypeError):
                self._crew = _Crew(cores() - 1)  # none on one core: the caller does all jobs
        if self._crew is None:
            self._busy.release()
        return self._crew


class _Crew:
    """Helpers, and the memory that they and their caller share."""

    def __init__(self, helpers: int) -> None:
        system: Any = ctypes.CDLL(None)
        addresses = [_code(getattr(system, name)) for name in _SYSTEM]
        addresses.append(_code(getattr(system, "sched_getcpu", None)))
        self._call = _compiled()
        # What different threads write is in different lines of the cache.
        self._memory = np.zeros(HEADER + helpers * SLOT + 16, np.int64)
        # Helpers look at it for as long as the process lives, even while Python shuts down.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))
        skipped = -address(self._memory) % 128 // 8
        self._words = self._memory[skipped:]
        self._start = start = address(self._words)
        self._jobs = np.zeros((_MOST, 2), np.int64)
        self._listed = address(self._jobs)
        self._words[CONFIG : CONFIG + 7] = [0, self._listed, helpers, *addresses]
        self._words[CROWDED] = -1
        requests = [(JOIN, start), (ROUSE, start), (SPIN, start)]
        slots = [HEADER + k * SLOT for k in range(helpers)]
        requests += [(SERVE, start + 8 * slot) for slot in slots]
        self._requests = np.array(requests, np.int64)
        first = address(self._requests)
        self._join, self._rouse, spin, *serve = (first + 16 * k for k in range(len(requests)))
        self._words[SPINS] = self._turns(spin)
        for slot in slots:
            self._words[slot + 2] = start
            semaphore = ctypes.c_void_p(start + 8 * (slot + SEMAPHORE))
            if system.sem_init(semaphore, 0, 0):
                raise OSError("the system has no semaphores of this kind")
        self._threads: list[Thread] = []
        self._cores: set[int] = set()
        if hasattr(os, "sched_setaffinity"):
            self._cores = os.sched_getaffinity(0)
        for k, request in enumerate(serve):
            name = f"eindecomp-helper-{k + 1}"
            self._threads.append(Thread(target=self._call, args=(request,), name=name, daemon=True))
            self._threads[-1].start()

    def _turns(self, spin: int) -> int:
        """How often to look before falling asleep."""
        self._words[SPINS] = _PROBE
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
        self._words[CONFIG + 1] = self._listed
        self._call(self._join)
        self._part()
        if failed:
            raise failed[0]

    def repeat(self, repetition: Repetition, arrays: Sequence[Any]) -> None:
        """Do groups of jobs, one after another, for arrays."""
        repetition.objects[:] = [*map(id, arrays)]
        repetition.request[1] = self._start
        self._call(repetition.address)
        self._part()

    def _part(self) -> None:
        """Look whether a helper was on this thread's own core."""
        if (core := self._words.item(CROWDED)) >= 0:
            self._words[CROWDED] = -1
            self._leave(core)

    def _leave(self, core: int) -> None:
        """Keep helpers off a caller's core.

        The system likes to wake a thread up on the core of whoever wakes it. That suits threads
        that take turns; these two would wait for each other.
        """
        for thread in self._threads if self._cores else ():
            with suppress(OSError):  # as where this process may not use any other core now
                os.sched_setaffinity(thread.native_id or 0, self._cores - {core})

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
    """The address of a function, 0 of None."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def data_word() -> int:
    """In which word of an array's object the address of its data is; -1 if that cannot be told."""
    if sys.implementation.name != "cpython":
        return -1
    samples = [np.zeros(2), np.zeros((3, 2), np.int8), np.zeros((2, 3), np.complex64).T]
    count = np.ndarray.__basicsize__ // 8
    words = [[*(ctypes.c_int64 * count).from_address(id(array))] for array in samples]
    found = {own.index(address(x)) for own, x in zip(words, samples, strict=True)}
    return found.pop() if len(found) == 1 else -1


@cache
def _compiled() -> Callable[[int], None]:
    key = versions() + fork_join_code(processor()[0], "fork_join")
    name = f"fork_join_{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    # Whatever is wrong with the file, compiling again repairs it.
    with suppress(Exception):
        if (code := load(key)) is not None:
            return link(code, name)
    code = machine_code(fork_join_code(processor()[0], name))
    store(key, code)
    return link(code, name)


HELPERS = Helpers()

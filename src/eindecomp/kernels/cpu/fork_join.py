"""Doing independent jobs on all cores at once, in microseconds and without Python's lock.

Helpers are threads that wait in compiled code to be called, spinning for a while, then asleep at a
semaphore. The caller wakes them, takes jobs itself by a counter that all share, and waits for those
who came. A helper that has not woken up by then is not waited for. Where the system has no
semaphores of this kind, there are no helpers.

Of the words that they share, the first is the number of the next job, alone in its line of the
cache; then come how many jobs there are, where they are (a function and its argument each), how
many helpers are called, how often to look before one falls asleep, and the system's sched_yield,
sem_wait and sem_post, and a core that the caller shares with a helper. A slot for each helper
follows: its state, where the words begin, whether it sleeps, the core it is on, and its semaphore.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from textwrap import indent
from threading import Lock, Thread
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from eindecomp.kernels.cores import cores
from eindecomp.kernels.cpu.compiling.compile import CompiledFunction, compile_source

_SPIN = 1e-4
"""Seconds that a helper spins: about as long as a run takes from one large vertex to the next."""
_PROBE = 2000  # turns of spinning to measure how long one takes
_MOST = 255
"""The most helpers that there may be."""
_COUNT, _JOBS, _HELPERS, _TURNS, _YIELD, _WAIT, _POST, _CROWDED = range(16, 24)
_FIRST, _SLOT = 32, 16
"""Words: those after the first line, the first slot, and how long a slot is."""
_SLEEPS, _CORE, _SEMAPHORE = 2, 3, 4
"""Words of a slot."""
_FREE, _CALLED, _TAKEN, _DONE = range(4)
"""States of a slot: one that is called is taken by its helper, or taken back by the caller."""

_WORK = f"""\
count, jobs = shared_load(words, {_COUNT}), shared_load(words, {_JOBS})
number = shared_add(words, 0, 1)
while number < count:
    call_code(shared_load(jobs, 2 * number), shared_load(jobs, 2 * number + 1))
    number = shared_add(words, 0, 1)
"""
_SERVE = f"""
def kernel(slot):
    words = shared_load(slot, 1)
    turn = 0
    while turn < shared_load(words, {_TURNS}):
        turn += 1
        pause()
        if turn == shared_load(words, {_TURNS}):
            if shared_load(words, {_WAIT}) != 0:
                shared_store(slot, {_SLEEPS}, 1)
                # Said before looking: who calls looks for sleepers after calling.
                if shared_load(slot, 0) != {_CALLED}:
                    call_code(shared_load(words, {_WAIT}), slot + {8 * _SEMAPHORE})
                shared_store(slot, {_SLEEPS}, 0)
                turn = 0
        if shared_load(slot, 0) == {_CALLED}:
            if shared_exchange(slot, 0, {_CALLED}, {_TAKEN}) == {_CALLED}:
                shared_store(slot, {_CORE}, core_of_thread())
{indent(_WORK, " " * 16)}
                shared_store(slot, 0, {_DONE})
                turn = 0
"""
_WAKE = f"""\
if shared_exchange(words, slot + {_SLEEPS}, 1, 0) == 1:
    call_code(shared_load(words, {_POST}), words + 8 * (slot + {_SEMAPHORE}))
"""
_ROUSE = f"""
def kernel(words):
    for k in range(shared_load(words, {_HELPERS})):
        slot = {_FIRST} + {_SLOT} * k
{indent(_WAKE, " " * 8)}
"""
_JOIN = f"""
def kernel(words):
    shared_store(words, 0, 0)
    for k in range(shared_load(words, {_HELPERS})):
        slot = {_FIRST} + {_SLOT} * k
        shared_store(words, slot, {_CALLED})
{indent(_WAKE, " " * 8)}
{indent(_WORK, " " * 4)}
    for k in range(shared_load(words, {_HELPERS})):
        slot = {_FIRST} + {_SLOT} * k
        if shared_exchange(words, slot, {_CALLED}, {_FREE}) > {_CALLED}:
            turn = 0
            while shared_load(words, slot) != {_DONE}:
                turn += 1
                pause()
                if turn > shared_load(words, {_TURNS}):
                    call_code(shared_load(words, {_YIELD}), 0)
            if shared_load(words, slot + {_CORE}) == core_of_thread():
                shared_store(words, {_CROWDED}, core_of_thread())
            shared_store(words, slot, {_FREE})
"""


class CompiledJob(NamedTuple):
    """A function of compiled code, and the address that it is called with."""

    function: CompiledFunction
    argument: int

    def __call__(self) -> None:
        """Do it."""
        self.function(self.argument)


Job = CompiledJob | Callable[[], None]


class Helpers:
    """Threads that help one caller at a time."""

    def __init__(self) -> None:
        self._renew()
        if hasattr(os, "register_at_fork"):  # threads do not survive one
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._busy = Lock()
        self._crew: _Crew | None = None

    def run(self, jobs: Sequence[Job], workers: int | None = None) -> None:
        """Do all jobs, in any order, on at most so many threads; raises what one of them raises."""
        helpers = min(workers or cores(), len(jobs), _MOST) - 1
        if helpers < 1 or not self._busy.acquire(blocking=False):
            for job in jobs:
                job()
            return
        try:
            self._crew = self._crew or _Crew()
            self._crew.run(jobs, helpers)
        finally:
            self._busy.release()

    def rouse(self) -> None:
        """Wake up whoever sleeps, for jobs that are about to come."""
        if self._crew is not None:
            self._crew.rouse()


class _Crew:
    """Helpers, and the memory that they and their caller share."""

    def __init__(self) -> None:
        self._rouse = compile_source(_ROUSE, "waking helpers")
        self._join = compile_source(_JOIN, "working with helpers")
        self._serve = compile_source(_SERVE, "helping")
        # Different threads write to different cache lines.
        count = _FIRST + (_MOST + 1) * _SLOT
        memory = (ctypes.c_int64 * count)()
        # Helpers read it for as long as the process lives, even while Python shuts down.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
        self._start = -(-ctypes.addressof(memory) // 128) * 128
        self._words = (ctypes.c_int64 * (count - _SLOT)).from_address(self._start)
        for helper in range(_MOST):
            self._words[_FIRST + _SLOT * helper + 1] = self._start
        self._words[_TURNS] = _PROBE
        start = perf_counter()
        self._serve(self._slot(0))
        self._words[_TURNS] = max(1, int(_SPIN * _PROBE / (perf_counter() - start)))
        self._system: Any = ctypes.CDLL(None)
        for word, name in ((_YIELD, "sched_yield"), (_WAIT, "sem_wait"), (_POST, "sem_post")):
            function = getattr(self._system, name)
            self._words[word] = ctypes.cast(function, ctypes.c_void_p).value or 0
        self._listed = (ctypes.c_int64 * 2)()
        self._callback = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self._do)
        self._code = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        self._jobs: Sequence[Job] = ()
        self._failed: list[BaseException] = []
        self._words[_CROWDED] = -1
        self._threads: list[Thread] = []

    def _slot(self, helper: int) -> int:
        return self._start + 8 * (_FIRST + _SLOT * helper)

    def _hire(self, helpers: int) -> None:
        """Have this many helpers called, starting threads for those that are missing."""
        while len(self._threads) < helpers:
            slot = self._slot(len(self._threads))
            if self._system.sem_init(ctypes.c_void_p(slot + 8 * _SEMAPHORE), 0, 0):
                break
            name = f"eindecomp-helper-{len(self._threads) + 1}"
            self._threads.append(Thread(target=self._serve, args=(slot,), name=name, daemon=True))
            self._threads[-1].start()
        self._words[_HELPERS] = min(helpers, len(self._threads))

    def _leave(self, core: int) -> None:
        """Keep helpers off the caller's core.

        Systems wake a thread on the core of its waker, where these two would wait for each other.
        """
        self._words[_CROWDED] = -1
        for thread in self._threads:
            with suppress(OSError):  # this process may not use any other core now
                os.sched_setaffinity(thread.native_id or 0, os.sched_getaffinity(0) - {core})

    def rouse(self) -> None:
        """Wake up helpers that sleep."""
        self._rouse(self._start)

    def run(self, jobs: Sequence[Job], helpers: int) -> None:
        """Do jobs with whichever helpers come."""
        listed: list[int] = []
        for number, job in enumerate(jobs):
            if isinstance(job, CompiledJob):
                listed += (job.function.address, job.argument)
            else:
                listed += (self._code, number)
        if len(listed) > len(self._listed):
            self._listed = (ctypes.c_int64 * (2 * len(listed)))()
            self._words[_JOBS] = ctypes.addressof(self._listed)
        self._listed[: len(listed)] = listed
        self._words[_COUNT] = len(jobs)
        self._hire(helpers)
        self._jobs = jobs
        self._join(self._start)
        self._jobs = ()
        if self._words[_CROWDED] >= 0:
            self._leave(self._words[_CROWDED])
        if self._failed:
            failed, self._failed = self._failed, []
            try:
                raise failed[0]
            finally:
                del failed  # its traceback has this frame

    def _do(self, number: int) -> None:
        """Do a job of Python's, under its lock."""
        job = self._jobs[number]
        try:
            with np.errstate(all="ignore"):  # belongs to a thread
                job()
        except BaseException as error:
            self._failed.append(error)


HELPERS = Helpers()

"""The BLAS that products call, and how it is held to one thread per worker.

It is MKL where that lies beside this Python, otherwise NumPy's. Workers that each call a library
with threads of its own would fight for the same cores.

A process is forked between kernel calls, not within one. A child has only the thread that forked.
What others held then is held for good: the locks of BLAS, were a product at work. So a fork waits
for calls that are at work and lets none begin meanwhile. A call that takes too long to be waited
for leaves a child in which nothing runs, and which says so.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Condition, Lock, RLock, get_ident
from time import monotonic
from typing import Any

from threadpoolctl import ThreadpoolController

from eindecomp.errors import RunError

_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
# How builds name Fortran's functions: with 32-bit integers, then with 64-bit ones.
_SPELLINGS = {"{}_": 2**31 - 1, "scipy_{}_": 2**31 - 1, "{}_64_": 2**62, "scipy_{}_64_": 2**62}
_SEQUENTIAL = 1  # MKL's number for a layer without threads
_DOES = ("get", "set")
Threads = tuple[Callable[[], int], Callable[[int], object]]


@dataclass(frozen=True, slots=True)
class BlasLibrary:
    """One BLAS: where its functions are, and the largest size they take."""

    name: str
    matrices: Mapping[str, int]
    """Products of two matrices, by type."""
    vectors: Mapping[str, int]
    """Products of a matrix and a vector, by type."""
    largest: int
    get_threads: Callable[[], int]
    set_threads: Callable[[int], object]


@cache
def blas_library() -> BlasLibrary:
    """The library that products call: MKL, or the newest of the others."""
    known = [library for pool in pools() if (library := _read(pool)) is not None]
    if not known:
        return _scipy()
    return max(known, key=lambda library: (library.name.startswith("mkl"), library.name))


@cache
def pools() -> list[Any]:
    """The controllers of the threads of each BLAS that may be called.

    How many threads OpenMP starts is a setting of each calling thread: a library that uses it would
    start some for every one of ours. It is called only where there is no other.
    """
    # MKL, if it is installed beside this Python, with no threads of its own.
    for path in sorted(Path(sys.prefix, "lib").glob("libmkl_rt.so*")):
        with suppress(OSError, AttributeError):
            ctypes.CDLL(str(path)).MKL_Set_Threading_Layer(_SEQUENTIAL)
            break
    selected: Any = controller().select(user_api="blas")
    loaded: list[Any] = selected.lib_controllers
    apart = [pool for pool in loaded if getattr(pool, "threading_layer", "") != "openmp"]
    return apart or loaded


def _read(pool: Any) -> BlasLibrary | None:
    info = pool.info()
    with suppress(OSError):
        opened = ctypes.CDLL(info["filepath"])
        for spelling, largest in _SPELLINGS.items():
            with suppress(AttributeError):

                def find(name: str, spelling: str = spelling) -> int:
                    function = getattr(opened, spelling.format(name))
                    return ctypes.cast(function, ctypes.c_void_p).value or 0

                name = f"{info['internal_api']} {info['version']}"
                return _library(name, find, largest, _threads(pool, opened, spelling))
    return None


def _threads(pool: Any, opened: Any, spelling: str) -> Threads:
    """What says and sets how many threads a library uses.

    The controller of OpenBLAS does nothing for a thread if another one has set them before.
    """
    of_c = spelling.replace("{}_", "{}")
    with suppress(AttributeError):
        get, set_ = (getattr(opened, of_c.format(f"openblas_{do}_num_threads")) for do in _DOES)
        return get, set_
    return pool.get_num_threads, pool.set_num_threads


def _scipy() -> BlasLibrary:
    """SciPy's BLAS by the addresses it exports, where libraries cannot be searched."""
    offered: Any = import_module("scipy.linalg.cython_blas")  # a compiled module without types
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    title = ctypes.pythonapi.PyCapsule_GetName
    title.restype, title.argtypes = ctypes.c_char_p, [ctypes.py_object]

    def find(name: str) -> int:
        capsule = offered.__pyx_capi__[name]
        return pointer(capsule, title(capsule))

    return _library("scipy", find, 2**31 - 1, (lambda: 1, lambda _: None))


def _library(name: str, find: Callable[[str], int], largest: int, threads: Threads) -> BlasLibrary:
    matrices = {dtype: find(f"{letter}gemm") for dtype, letter in _LETTERS.items()}
    vectors = {dtype: find(f"{letter}gemv") for dtype, letter in _LETTERS.items()}
    return BlasLibrary(name, matrices, vectors, largest, *threads)


@cache
def controller() -> ThreadpoolController:
    """Lists the loaded libraries and sets how many threads each may use."""
    import_module("scipy.linalg.cython_blas")  # what is loaded later is not seen
    return ThreadpoolController()


LOCK = RLock()
_RUNNING: list[int] = []
"""The threads of the runs in progress."""
_BEFORE: list[int] = []
"""How many threads BLAS had before the first of these runs."""


@contextmanager
def one_thread_each() -> Generator[None]:
    """Limit BLAS to one thread while any run or measurement is in progress."""
    own = get_ident()
    with LOCK:
        # The setting belongs to the process: the first run makes it, the last undoes it.
        if not _RUNNING:
            library = blas_library()
            _BEFORE.append(library.get_threads())
            library.set_threads(1)
        _RUNNING.append(own)
    try:
        yield
    finally:
        with LOCK:
            _RUNNING.remove(own)
            _undo_if_none_runs()


def _undo_if_none_runs() -> None:
    while _BEFORE and not _RUNNING:
        blas_library().set_threads(_BEFORE.pop())


# Forks

PATIENCE = 5.0
"""Seconds that a fork waits for calls."""
_PAUSE = 0.001  # seconds between two looks at the marks


class CallMark:
    """Whether a thread is within a call; set and looked at without a lock."""

    __slots__ = ("at_work", "thread")

    def __init__(self) -> None:
        self.at_work, self.thread = False, get_ident()


class Gate:
    """Lets calls begin, but not while this process is forked."""

    def __init__(self) -> None:
        self.closed = False
        self._left_behind = False
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._close, after_in_parent=self._open, after_in_child=self._begin_anew
            )

    def _reset(self) -> None:
        self._marks: set[CallMark] = set()
        self._forkers: set[int] = set()
        """The threads that fork or wait to do so: they are in Python, not within a kernel."""
        self._opened = Condition()
        self._forking = Lock()

    def join(self) -> CallMark:
        """A mark for a thread that is going to carry out calls."""
        if self._left_behind:
            raise RunError(
                "this process was forked while its parent was within a kernel, and BLAS is locked "
                "in it for good: fork before the run or after it, or start processes by 'spawn'"
            )
        mark = CallMark()
        self._marks.add(mark)
        return mark

    def leave(self, mark: CallMark) -> None:
        """Forget a mark."""
        self._marks.discard(mark)

    def enter(self, mark: CallMark) -> None:
        """Set a mark before a call; waits while the gate is closed."""
        mark.at_work = True
        # Set before looking: whoever closes the gate looks at marks after closing it.
        while self.closed and not self._is_within_another(mark):
            mark.at_work = False
            with self._opened:
                while self.closed:
                    self._opened.wait()
            mark.at_work = True

    def _is_within_another(self, mark: CallMark) -> bool:
        """Whether a call is part of one that the fork waits for already: a run within a run."""
        others = (m for m in tuple(self._marks) if m is not mark)
        return any(other.at_work and other.thread == mark.thread for other in others)

    def _close(self) -> None:
        self._forkers.add(get_ident())
        self._forking.acquire()
        self.closed = True
        end = monotonic() + PATIENCE
        while self._busy() and monotonic() < end:
            with self._opened:
                self._opened.wait(_PAUSE)
        LOCK.acquire()

    def _busy(self) -> bool:
        """Whether a thread is within a call and is not itself forking."""
        marks = tuple(self._marks)
        return any(mark.at_work and mark.thread not in self._forkers for mark in marks)

    def _open(self) -> None:
        LOCK.release()
        self.closed = False
        with self._opened:
            self._opened.notify_all()
        self._forkers.discard(get_ident())
        self._forking.release()

    def _begin_anew(self) -> None:
        self._left_behind = self._left_behind or self._busy()
        self.closed = False
        self._reset()
        if not self._left_behind:
            # The threads of other runs were not copied.
            _RUNNING[:] = [thread for thread in _RUNNING if thread == get_ident()]
            _undo_if_none_runs()
        LOCK.release()


GATE = Gate()

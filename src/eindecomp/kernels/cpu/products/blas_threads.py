"""BLAS held to one thread per worker: workers would otherwise fight for the same cores."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import cache
from itertools import product
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any

from eindecomp.kernels.cpu.products.blas_libraries import pools

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

LOCK = RLock()


class _Limit:
    """Sets all libraries to one thread, many times as fast as threadpoolctl's own limit."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before = [(set_threads, get_threads()) for get_threads, set_threads in _pools()]
        for set_threads, _ in self._before:
            set_threads(1)

    def undo(self) -> None:
        """Give every library the threads that it had."""
        for set_threads, count in self._before:
            set_threads(count)


@cache
def _pools() -> list[tuple[Callable[[], int], Callable[[int], object]]]:
    """For each library what tells how many threads it may use, and what sets them."""
    return [_functions(pool) for pool in pools()]  # what is loaded later is not held


def _functions(pool: Any) -> tuple[Callable[[], int], Callable[[int], object]]:
    if pool.internal_api == "openblas" and pool.threading_layer != "openmp":
        for before, after in product(("", "scipy_"), ("", "64_", "_64")):
            with suppress(AttributeError):
                get_threads = getattr(pool.dynlib, f"{before}openblas_get_num_threads{after}")
                return get_threads, getattr(pool.dynlib, f"{before}openblas_set_num_threads{after}")
    return pool.get_num_threads, pool.set_num_threads


_RUNNING: list[tuple[_Limit, int]] = []
"""The runs in progress: the limit that the first has set, and the thread of each."""


@contextmanager
def one_thread_each() -> Generator[None]:
    """Limit BLAS to one thread while any run or measurement is in progress."""
    with LOCK:
        # The setting belongs to the process: the first run makes it, the last undoes it.
        limit = _RUNNING[0][0] if _RUNNING else _Limit()
        own = (limit, get_ident())
        _RUNNING.append(own)
    try:
        yield
    finally:
        with LOCK:
            _RUNNING.remove(own)
            if not _RUNNING:
                limit.undo()


def forget_others() -> None:
    """In a forked process, undo limits set by runs whose threads were not copied."""
    before = [*_RUNNING]
    _RUNNING[:] = [run for run in before if run[1] == get_ident()]
    if before and not _RUNNING:
        before[0][0].undo()

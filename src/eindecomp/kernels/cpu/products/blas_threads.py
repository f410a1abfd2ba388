"""BLAS held to one thread per worker: workers would otherwise fight for the same cores."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any

from eindecomp.kernels.cpu.products.blas_libraries import controller, libraries

if TYPE_CHECKING:
    from collections.abc import Generator

LOCK = RLock()


class _Limit:
    """Sets all libraries to one thread, ten times as fast as threadpoolctl's own limit."""

    def __init__(self) -> None:
        self._before = [(pool, pool.get_num_threads()) for pool in _pools()]
        for pool, _ in self._before:
            pool.set_num_threads(1)

    def undo(self) -> None:
        """Give every library the threads that it had."""
        for pool, count in self._before:
            pool.set_num_threads(count)


@cache
def _pools() -> list[Any]:
    libraries()  # what is loaded later is not held
    selected: Any = controller().select(user_api="blas")
    return list(selected.lib_controllers)


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

"""BLAS held to one thread per worker: workers would otherwise fight for the same cores."""

from __future__ import annotations

from contextlib import contextmanager
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any

from eindecomp.kernels.blas_libraries import controller, libraries

if TYPE_CHECKING:
    from collections.abc import Generator

LOCK = RLock()
_RUNNING: list[tuple[Any, int]] = []
"""The runs that last: what the first has set, and the thread of each."""


@contextmanager
def one_thread_each() -> Generator[None]:
    """Hold BLAS to one thread while anybody's run or measurement lasts."""
    libraries()  # what is loaded later would not be held
    with LOCK:
        # The setting belongs to the process: the first run makes it, the last undoes it.
        limit = _RUNNING[0][0] if _RUNNING else controller().limit(limits=1, user_api="blas")
        own = (limit, get_ident())
        _RUNNING.append(own)
    try:
        yield
    finally:
        with LOCK:
            _RUNNING.remove(own)
            if not _RUNNING:
                limit.restore_original_limits()


def forget_others() -> None:
    """Undo, in a process that was forked, what only runs of threads that it lacks have set."""
    before = [*_RUNNING]
    _RUNNING[:] = [run for run in before if run[1] == get_ident()]
    if before and not _RUNNING:
        before[0][0].restore_original_limits()

"""BLAS held to one thread per worker: workers would otherwise fight for the same cores."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from collections.abc import Generator

_LOCK = Lock()
_RUNNING: list[Any] = []


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_thread_each() -> Generator[None]:
    """Hold BLAS to one thread while any run lasts."""
    with _LOCK:
        # The setting belongs to the process: the first run makes it, the last undoes it.
        limit = None if _RUNNING else _controller().limit(limits=1, user_api="blas")
        _RUNNING.append(limit)
    try:
        yield
    finally:
        with _LOCK:
            if len(_RUNNING) > 1:
                _RUNNING.pop()
            elif (limit := _RUNNING.pop()) is not None:
                limit.restore_original_limits()

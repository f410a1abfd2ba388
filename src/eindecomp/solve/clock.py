"""The clock of planning, which stands still while the solver's loops are compiled or loaded.

On a machine's first call that can take a minute; it is no planning, and counts towards no limit.
Apart from `compiled`, so that a progress display can listen without loading numba.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from time import monotonic

_listener: ContextVar[Callable[[bool], None] | None] = ContextVar("listener", default=None)


class _Clock:
    """One for all threads: those of one search compile for each other."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.stops, self.stopped_at, self.lost = 0, 0.0, 0.0


_clock = _Clock()


def planning_time() -> float:
    """Seconds that only ever grow, and not while the clock is stopped."""
    with _clock.lock:
        return (_clock.stopped_at if _clock.stops else monotonic()) - _clock.lost


@contextmanager
def stopped_clock() -> Generator[None, None, None]:
    """Let the clock stand still, as while a loop is compiled."""
    with _clock.lock:
        if not _clock.stops:
            _clock.stopped_at = monotonic()
        _clock.stops += 1
    try:
        yield
    finally:
        with _clock.lock:
            _clock.stops -= 1
            if not _clock.stops:
                _clock.lost += monotonic() - _clock.stopped_at


@contextmanager
def watch_compilation(listener: Callable[[bool], None]) -> Generator[None, None, None]:
    """Call `listener(True)` when this thread starts to compile a loop, `listener(False)` after.

    A loop compiles the loops that it calls, so calls may nest. An inner watch replaces an outer
    one.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell_compiling(active: bool) -> None:
    """Tell the listener, if there is one, that compilation starts or has ended."""
    listener = _listener.get()
    if listener is not None:
        listener(active)

"""The clock of planning, which stands still while the solver's loops are compiled or loaded.

On a machine's first call that can take a minute; it is no planning, and counts towards no limit.
Nor does time count in which others use the processor: on a busy machine, plans are as good.
Apart from `compiled`, so that a progress display can listen without loading numba.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from time import monotonic, process_time

_listener: ContextVar[Callable[[bool], None] | None] = ContextVar("listener", default=None)


class _Clock:
    """One for all threads: those of one search compile for each other."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.stops, self.seconds = 0, 0.0
        self.seen, self.used = monotonic(), process_time()

    def advance(self) -> float:
        """The seconds until now: those that passed, or that this process had the processor."""
        seen, used = monotonic(), process_time()
        if not self.stops:
            self.seconds += max(min(seen - self.seen, used - self.used), 0.0)
        self.seen, self.used = seen, used
        return self.seconds


_clock = _Clock()


def planning_time() -> float:
    """Seconds that only ever grow, and not while the clock is stopped."""
    with _clock.lock:
        return _clock.advance()


@contextmanager
def stopped_clock() -> Generator[None, None, None]:
    """Let the clock stand still, as while a loop is compiled."""
    with _clock.lock:
        _clock.advance()
        _clock.stops += 1
    try:
        yield
    finally:
        with _clock.lock:
            _clock.advance()
            _clock.stops -= 1


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

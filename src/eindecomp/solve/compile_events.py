"""Who is told when the solver starts and stops compiling its loops, which can take a minute.

Apart from `compiled`, so that a progress display can listen without loading numba.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_listener: ContextVar[Callable[[bool], None] | None] = ContextVar("listener", default=None)


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

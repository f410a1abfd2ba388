"""Deferring Ctrl-C while something runs that must not be left half done."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


@contextmanager
def uninterrupted() -> Generator[Callable[[], None]]:
    """Defer Ctrl-C until the block ends, or until the function that it is given is called.

    Only the main thread ever receives it; in other threads this does nothing.
    """
    before = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or not callable(before):
        yield lambda: None
        return
    handle, waiting = before, list[FrameType | None]()

    def tell() -> None:
        if waiting:
            frame = waiting[0]
            waiting.clear()
            handle(signal.SIGINT, frame)

    signal.signal(signal.SIGINT, lambda _, frame: waiting.append(frame))
    try:
        yield tell
    finally:
        signal.signal(signal.SIGINT, before)
        tell()

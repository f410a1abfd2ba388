"""Who hears of what kernel libraries compile: engines that report it."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

Compilation = tuple[str, float, float]
"""What was compiled, and from when until when, by `perf_counter`."""

_recorded: ContextVar[list[Compilation] | None] = ContextVar("recorded", default=None)


@contextmanager
def record_compilations() -> Generator[list[Compilation]]:
    """A list of what this thread compiles meanwhile, except within an inner such block."""
    found: list[Compilation] = []
    token = _recorded.set(found)
    try:
        yield found
    finally:
        _recorded.reset(token)


def note_compilation(description: str, start: float, stop: float) -> None:
    """Tell whoever records on this thread that something has been compiled."""
    recorded = _recorded.get()
    if recorded is not None:
        recorded.append((description, start, stop))

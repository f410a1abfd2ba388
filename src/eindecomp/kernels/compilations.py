"""Recording what kernel libraries compile, so that engines can report it."""

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
    """Collect what this thread compiles in the block; an inner block collects its own."""
    found: list[Compilation] = []
    token = _recorded.set(found)
    try:
        yield found
    finally:
        _recorded.reset(token)


def note_compilation(description: str, start: float, stop: float) -> None:
    """Add a compilation to what this thread records, if it does."""
    recorded = _recorded.get()
    if recorded is not None:
        recorded.append((description, start, stop))

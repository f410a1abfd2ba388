"""A progress bar for long runs, on a terminal."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from eindecomp.engines.events import Event, KernelCompiled, RunStarted, TaskFinished

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from rich.progress import Progress

_PATIENCE = 1.0  # seconds before a run counts as long
_PAUSE = 0.1  # seconds between updates of the bar


def is_wanted(wanted: bool | None) -> bool:
    """Whether to show a bar: as said, otherwise where there is a terminal."""
    return wanted is True or (wanted is None and sys.stderr.isatty())


@contextmanager
def showing(wanted: bool | None) -> Generator[Callable[[Event], None] | None]:
    """A listener for the events of a run; None where no bar is wanted, or there is no terminal."""
    if not is_wanted(wanted):
        yield None
        return
    started = last = monotonic()
    total: int | None = None
    done = compiled = 0
    bar: Progress | None = None

    def follow(event: Event) -> None:
        nonlocal bar, compiled, done, last, total
        if isinstance(event, RunStarted):
            total = event.tasks
        elif isinstance(event, KernelCompiled):
            compiled += 1
        elif isinstance(event, TaskFinished):
            done += 1
            now = monotonic()
            if now - last > _PAUSE and now - started > _PATIENCE:
                last = now
                bar = bar or _bar(total)
                what = f"running (kernels compiled: {compiled})" if compiled else "running"
                bar.update(bar.task_ids[0], completed=done, description=what)

    try:
        yield follow
    finally:
        if bar is not None:
            bar.stop()


def _bar(total: int | None) -> Progress:
    # Most runs end before they need a bar, and rich takes long to import.
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    bar.add_task("running", total=total)
    bar.start()
    return bar

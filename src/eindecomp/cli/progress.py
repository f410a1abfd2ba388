"""What a long command shows while it works, and how it is stopped."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from eindecomp.cli.mistakes import INTERRUPTED
from eindecomp.show.progress import progress_console, solving

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from eindecomp.solve.run import Progress


@contextmanager
def live_line() -> Generator[Callable[[Progress], None] | None, None, None]:
    """A line that follows the solver's events on a terminal; None elsewhere."""
    with solving(None) as follow:
        yield follow


@contextmanager
def interruptible(lost: str = "no plan yet") -> Generator[None, None, None]:
    """End a command cleanly at Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"eindecomp: interrupted, {lost}", err=True)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def status_line() -> Generator[Callable[[str], None]]:
    """A status line on a terminal."""
    if not progress_console().is_terminal:
        yield lambda _: None
        return
    with progress_console().status("starting") as status:
        yield status.update

"""What a long command shows while it works, and how it is stopped."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from math import inf, isinf
from time import monotonic
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from eindecomp.solve.compile_events import watch_compilation
from eindecomp.solve.solution import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

INTERRUPTED = 130
COMPILING = "compiling the solver, once on this machine"
progress_console = Console(stderr=True)


@contextmanager
def live_line() -> Generator[Callable[[Progress], None] | None, None, None]:
    """A line that follows the solver's events on a terminal; None elsewhere."""
    if not progress_console.is_terminal:
        yield None
        return
    started, last = monotonic(), Progress(0.0, "starting", inf, 0)
    compiling = 0

    def line() -> Text:
        # The clock goes on between events: compiling the solver's loops may take a minute.
        stage = COMPILING if compiling or last.stage == "compile" else last.stage
        return progress_line(replace(last, seconds=monotonic() - started, stage=stage))

    def follow(event: Progress) -> None:
        nonlocal last
        last = event

    def count_compilations(active: bool) -> None:
        nonlocal compiling
        compiling += 1 if active else -1

    live = Live(get_renderable=line, console=progress_console, transient=True, refresh_per_second=4)
    with live, watch_compilation(count_compilations):
        yield follow


def progress_line(event: Progress) -> Text:
    """Where the solver stands, in one line."""
    return Text(
        f"{event.seconds:7,.1f} s  {event.stage:<10} "
        f"cost {show_number(event.cost)}  bound {show_number(event.bound)}"
    )


def show_number(number: float) -> str:
    """A cost or a bound, in full."""
    if isinf(number):
        return "none yet"
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:,.10g}" if abs(number) < 1e10 else f"{number:,.0f}"


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
    if not progress_console.is_terminal:
        yield lambda _: None
        return
    with progress_console.status("starting") as status:
        yield status.update

"""How far long work has come, where somebody waits for it: on a terminal, or in a notebook.

Work that ends within a second shows nothing, and loads nothing of what would show it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import cache
from html import escape
from importlib import import_module
from math import inf, isinf
from threading import Event as Signal
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from eindecomp.engines.result import Event, KernelCompiled, RunStarted, TaskFinished
from eindecomp.solve.clock import watch_compilation
from eindecomp.solve.run import Progress

if TYPE_CHECKING:
    from rich.console import Console

_PATIENCE = 1.0  # seconds before work counts as long
_PAUSE = 0.1  # seconds between two looks at it
COMPILING = "compiling the solver, once on this machine"


@cache
def progress_console() -> Console:
    """The one console for progress: two lines that are shown at once must know of each other."""
    from rich.console import Console

    return Console(stderr=True)


def is_wanted(wanted: bool | None) -> bool:
    """Whether to show progress: as said, otherwise where there is a terminal or a notebook."""
    in_terminal = sys.stderr is not None and sys.stderr.isatty()  # pyright: ignore[reportUnnecessaryComparison] - None under pythonw
    return wanted is True or (wanted is None and (in_terminal or in_notebook()))


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this, which then has imported IPython."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return ask is not None and getattr(ask(), "kernel", None) is not None


@contextmanager
def showing(wanted: bool | None) -> Generator[Callable[[Event], None] | None]:
    """A listener for the events of a run that shows a bar; None where nobody wants one."""
    if not is_wanted(wanted):
        yield None
        return
    total: int | None = None
    done = compiled = 0
    with counting(True, None) as tell:

        def follow(event: Event) -> None:
            nonlocal compiled, done, total
            if isinstance(event, RunStarted):
                total = event.tasks
            elif isinstance(event, KernelCompiled):
                compiled += 1
            elif isinstance(event, TaskFinished):
                done += 1
                words = f"running (kernels compiled: {compiled})" if compiled else "running"
                tell(words, done, total)

        yield follow


@contextmanager
def counting(wanted: bool | None, total: int | None) -> Generator[Callable[..., None]]:
    """A function to be told what is done, and how much of it: a bar where one is wanted.

    Its third argument is the total, where that is not known before.
    """
    at: tuple[str, int, int | None] = ("", 0, total)
    with _watching(lambda: at) as look:

        def tell(what: str, done: int, of: int | None = total) -> None:
            nonlocal at
            at = (what, done, of)
            if is_shown:
                look()

        is_shown = is_wanted(wanted)
        yield tell


@contextmanager
def solving(
    wanted: bool | None, on_event: Callable[[Progress], None] | None = None
) -> Generator[Callable[[Progress], None] | None]:
    """A listener for the solver's events that shows a line where one is wanted.

    It passes them on to `on_event`; by default, whoever gives that wants no line as well.
    """
    shown = is_wanted(wanted) and not (wanted is None and on_event is not None)
    if not shown and on_event is None:
        yield None
        return
    line = _SolverLine(on_event)
    with watch_compilation(line.count_compilations):
        if not shown:
            yield line.follow
            return
        with _watching(lambda: (line.now(),)) as look, _now_and_then(look):
            yield line.follow


@dataclass(slots=True)
class _SolverLine:
    """Where the solver stands; its clock goes on between events, as while loops are compiled."""

    on_event: Callable[[Progress], None] | None
    last: Progress = field(default_factory=lambda: Progress(0.0, "starting", inf, 0))
    compiling: int = 0
    started: float = field(default_factory=monotonic)

    def follow(self, event: Progress) -> None:
        self.last = event
        if self.on_event is not None:
            self.on_event(event)

    def count_compilations(self, active: bool) -> None:
        self.compiling += 1 if active else -1
        if active and self.compiling == 1 and self.on_event is not None:
            self.on_event(replace(self.last, stage="compile"))

    def now(self) -> str:
        stage = COMPILING if self.compiling or self.last.stage == "compile" else self.last.stage
        return solver_line(replace(self.last, seconds=monotonic() - self.started, stage=stage))


def solver_line(event: Progress) -> str:
    """Where the solver stands, in one line.

    >>> solver_line(Progress(2.5, "search", 1200, 1000))
    '    2.5 s  search     cost 1,200  bound 1,000'
    """
    return (
        f"{event.seconds:7,.1f} s  {event.stage:<10} "
        f"cost {show_number(event.cost)}  bound {show_number(event.bound)}"
    )


def show_number(number: float) -> str:
    """A cost or a bound, in full.

    >>> show_number(1200), show_number(1.5), show_number(inf)
    ('1,200', '1.5', 'none yet')
    """
    if isinf(number):
        return "none yet"
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:,.10g}" if abs(number) < 1e10 else f"{number:,.0f}"


@contextmanager
def _watching(state: Callable[[], tuple[Any, ...]]) -> Generator[Callable[[], None]]:
    """A function that shows the state of work, if it takes long and was not shown just now."""
    started = last = monotonic()
    display: _TerminalDisplay | _NotebookDisplay | None = None
    broken = False

    def look() -> None:
        nonlocal broken, display, last
        now = monotonic()
        if broken or now - last <= _PAUSE or now - started <= _PATIENCE:
            return
        last = now
        try:
            display = display or _display()
            display.show(*state())
        except Exception:  # what cannot be shown must not end the work
            broken = True

    try:
        yield look
    finally:
        if display is not None:
            display.close()


def _display() -> _TerminalDisplay | _NotebookDisplay:
    return _NotebookDisplay() if in_notebook() else _TerminalDisplay()


@contextmanager
def _now_and_then(look: Callable[[], None]) -> Generator[None]:
    """Call a function from a thread of its own, for work that reports too rarely."""
    ended = Signal()

    def tick() -> None:
        while not ended.wait(_PAUSE):
            look()

    # In this context, by which kernels know the cell that something is shown under.
    thread = Thread(target=copy_context().run, args=(tick,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


# Where it is shown: each display replaces what it showed before


class _TerminalDisplay:
    """The last line of a terminal, by rich, which takes long to import."""

    def __init__(self) -> None:
        from rich.live import Live
        from rich.progress import MofNCompleteColumn, Progress

        console = progress_console()
        columns = (*Progress.get_default_columns(), MofNCompleteColumn())
        self._bar = Progress(*columns, console=console, auto_refresh=False)
        self._live = Live(console=console, transient=True, auto_refresh=False)
        self._live.start()

    def show(self, words: str, done: int | None = None, total: int | None = None) -> None:
        """Show a line, or a bar with the time left where it is known how much is done."""
        from rich.markup import escape as plain
        from rich.text import Text

        if done is None:
            self._live.update(Text(words), refresh=True)
            return
        if not self._bar.tasks:
            self._bar.add_task("", total=total)
        task = self._bar.task_ids[0]
        self._bar.update(task, description=plain(words), completed=done, total=total)
        self._live.update(self._bar.get_renderable(), refresh=True)

    def close(self) -> None:
        """Take away what was shown."""
        self._live.stop()


class _NotebookDisplay:
    """One output of the cell that runs, by the kernel's own means: no widgets need be installed."""

    def __init__(self) -> None:
        display = import_module("IPython.display").display
        self._handle: Any = display({"text/plain": ""}, raw=True, display_id=True)

    def show(self, words: str, done: int | None = None, total: int | None = None) -> None:
        """Show a line, or a bar with how much is done."""
        html = f"<code>{escape(words)}</code>"
        if done is not None:
            words = f"{words} {done}/{'?' if total is None else total}"
            extent = "" if total is None else f' value="{done}" max="{max(total, 1)}"'
            html = f"<progress{extent}></progress> {escape(words)}"
        self._handle.update({"text/plain": words, "text/html": html}, raw=True)

    def close(self) -> None:
        """Take away what was shown."""
        self._handle.update({"text/plain": "", "text/html": ""}, raw=True)

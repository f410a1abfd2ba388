"""Where progress is shown: a terminal's last line, or the output of a notebook's cell."""

from __future__ import annotations

from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


class Display(Protocol):
    """Shows one line, or a bar, in place of what it showed before."""

    def line(self, words: str) -> None:
        """Show a line."""
        ...

    def bar(self, words: str, done: int, total: int | None) -> None:
        """Show a bar: so much of the total, if that is known."""
        ...

    def close(self) -> None:
        """Take away what was shown."""
        ...


class TerminalDisplay:
    """The last line of a terminal, by rich, which takes long to import."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live
        from rich.progress import MofNCompleteColumn, Progress

        columns = (*Progress.get_default_columns(), MofNCompleteColumn())
        self._bar = Progress(*columns, console=console, auto_refresh=False)
        self._live = Live(console=console, transient=True, auto_refresh=False)
        self._live.start()

    def line(self, words: str) -> None:
        """Show a line."""
        from rich.text import Text

        self._show(Text(words))

    def bar(self, words: str, done: int, total: int | None) -> None:
        """Show a bar, with the time that is left."""
        from rich.markup import escape as plain

        if not self._bar.tasks:
            self._bar.add_task("", total=total)
        task = self._bar.task_ids[0]
        self._bar.update(task, description=plain(words), completed=done, total=total)
        self._show(self._bar.get_renderable())

    def _show(self, shown: RenderableType) -> None:
        self._live.update(shown, refresh=True)

    def close(self) -> None:
        """Take away what was shown."""
        self._live.stop()


class NotebookDisplay:
    """One output of the cell that runs, by the kernel's own means: no widgets need be installed."""

    def __init__(self) -> None:
        display = import_module("IPython.display").display
        self._handle: Any = display({"text/plain": ""}, raw=True, display_id=True)

    def line(self, words: str) -> None:
        """Show a line."""
        self._show(words, f"<code>{escape(words)}</code>")

    def bar(self, words: str, done: int, total: int | None) -> None:
        """Show a bar, with how much is done."""
        told = f"{words} {done}/{'?' if total is None else total}"
        extent = "" if total is None else f' value="{done}" max="{max(total, 1)}"'
        self._show(told, f"<progress{extent}></progress> {escape(told)}")

    def _show(self, words: str, html: str) -> None:
        self._handle.update({"text/plain": words, "text/html": html}, raw=True)

    def close(self) -> None:
        """Take away what was shown."""
        self._show("", "")

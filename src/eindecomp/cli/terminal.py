"""The terminal, file or pipe that a command writes to: its width, its letters, and live lines."""

from __future__ import annotations

import codecs
import sys
from contextlib import contextmanager
from io import TextIOWrapper
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import typer

from eindecomp.cli.mistakes import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_WIDTH = 80  # where there is no terminal, and COLUMNS does not say
_LEAST = 40
_ASCII = {
    "×": "x", "µ": "u", "−": "-", "–": "-", "—": "-", "·": "*", "…": "...", "∞": "inf",
    "→": "->", "←": "<-", "≤": "<=", "≥": ">=", "≈": "~", "─": "-", "━": "-", "═": "=", "│": "|",
    "┃": "|", "║": "|", "╴": "-", "╶": "-", "╭": "+", "╮": "+", "╯": "+", "╰": "+", "•": "*",
    "‘": "'", "’": "'", "“": '"', "”": '"',
}  # fmt: skip
"""What stands for the characters that we write ourselves where only ASCII can be shown."""
_HANDLER = "eindecomp-ascii"


def columns(otherwise: int = _WIDTH) -> int:
    """How wide tables may be: as the terminal or COLUMNS, otherwise 80 as in pipes and files."""
    return max(get_terminal_size((otherwise, 24)).columns, _LEAST)


def allow_any_terminal() -> None:
    """Let standard output and error lack characters: near ones are shown, or question marks."""
    codecs.register_error(_HANDLER, _nearest)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_ASCII.get(letter, _default(letter)) for letter in lacking), error.end


def _default(letter: str) -> str:
    """A plus for the crossings of lines, a question mark for all else."""
    return "+" if "\u2500" <= letter <= "\u257f" else "?"


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
    from eindecomp.show.progress import (
        progress_console,  # here: `eindecomp --version` needs no rich
    )

    console = progress_console()
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("starting") as status:
        yield status.update

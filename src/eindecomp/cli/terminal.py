"""The terminal, file or pipe that a command writes to, and what it says of mistakes."""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from shutil import get_terminal_size
from threading import current_thread, main_thread
from time import sleep

import typer

from eindecomp.errors import EinDecompError

_WIDTH = 80  # where there is no terminal, and COLUMNS does not say
_LEAST_WIDTH = 40
WRONG_INPUT = 1
INTERRUPTED = 130
BUG = 70  # EX_SOFTWARE of sysexits.h
CLOSED = 141  # as a shell reports a program that SIGPIPE ended
STATUSES = {
    0: "success",
    WRONG_INPUT: "the input was wrong (a message on standard error says what)",
    2: "the command was used wrongly",
    BUG: "a bug of eindecomp",
    INTERRUPTED: "interrupted before there was a result",
    CLOSED: "the reader of the output went away",
}
PATIENCE = 2.0
"""Seconds within which a launcher ends a job in which one rank has failed."""
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


def columns(otherwise: int = _WIDTH) -> int:
    """How wide tables may be: as the terminal or COLUMNS, otherwise 80 as in pipes and files."""
    return max(get_terminal_size((otherwise, 24)).columns, _LEAST_WIDTH)


def allow_any_terminal() -> None:
    """Let standard output and error write question marks for characters that they lack."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


@contextmanager
def status_line(words: str = "starting") -> Generator[Callable[[str], None]]:
    """A status line on a terminal, which may say something else later."""
    from eindecomp.show.progress import (
        progress_console,  # here: `eindecomp --version` needs no rich
    )

    console = progress_console()
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(words) as status:
        yield status.update


@contextmanager
def telling(*, debug: bool) -> Generator[None]:
    """Turn errors into a message and an exit status; with `debug` the traceback comes first.

    If the ranks of a job fail alike, only the first says why.
    """
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except KeyboardInterrupt as error:
        _say("interrupted", error, debug=debug)
        raise typer.Exit(INTERRUPTED) from None
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # which rich ends with status 1
            raise typer.Exit(CLOSED) from None
        raise
    except Exception as error:
        if isinstance(error, BrokenPipeError) and error.filename is None and _is_closed():
            _discard_output()
            raise typer.Exit(CLOSED) from None
        let_first_speak()
        if hasattr(error, "exit_code"):
            raise  # typer reports its own errors, and how the command is used
        words, status = _told(error, debug=debug)
        _say(words, error, debug=debug)
        raise typer.Exit(status) from None


def _told(error: Exception, *, debug: bool) -> tuple[str, int]:
    """An error in words, and the status that it ends with."""
    match error:
        case EinDecompError():
            return str(error), WRONG_INPUT
        case OSError():
            where = "" if error.filename is None else f"{error.filename}: "
            return f"{where}{error.strerror or error}", WRONG_INPUT
        case MemoryError():
            # NumPy says how much, and of which shape.
            return f"out of memory{f': {error}' if str(error) else ''}", WRONG_INPUT
        case _:
            first, *_ = [*str(error).splitlines(), ""]
            what = type(error).__name__ + (f": {first}" if first else "")
            how = "" if debug else " shown by eindecomp --debug …, or with EINDECOMP_DEBUG=1"
            asked = f"please report it with the traceback{how}"
            return f"internal error: {what}\nThis is a bug of eindecomp: {asked}", BUG


def _say(words: str, error: BaseException, *, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    typer.echo(f"eindecomp: {words}", err=True)


def _is_closed() -> bool:
    """Whether whoever read standard output has gone, as `head` does when it has enough."""
    poll = select.poll()
    poll.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _discard_output() -> None:
    """Send what is still buffered nowhere, so that Python's own flush at the end cannot fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


# The ranks of a job that a launcher has started: if they fail alike, only the first says why.


def launched_rank() -> int | None:
    """The rank that a launcher gave this process, from its environment; None without one."""
    torch = ("RANK",) if "WORLD_SIZE" in os.environ else ()
    given = next((os.environ[name] for name in (*torch, *_RANKS) if name in os.environ), "")
    return int(given) if given.isdecimal() else None


def let_first_speak() -> None:
    """Wait before reporting an error, unless this is the first rank, which may report the same.

    If it does, the launcher ends this process meanwhile; an error of this rank alone is reported.
    """
    if not launched_rank():
        return
    if current_thread() is main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # without a word on where this rank was
    sleep(PATIENCE)


def leave_job(status: int) -> None:
    """End a rank that has failed at once: on a usual way out MPI waits for all other ranks."""
    if launched_rank() is None:
        return
    with suppress(OSError):  # as of a full disk, which was told already
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)

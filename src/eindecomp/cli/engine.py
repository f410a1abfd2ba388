"""`--engine` and `--option`, which the commands that run something share."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from threading import current_thread, main_thread
from time import sleep
from typing import TYPE_CHECKING, Annotated

import typer

from eindecomp.cli.completion import engines
from eindecomp.cli.texts import pairs_from
from eindecomp.engines.engine import find_engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.engines.engine import Engine

PATIENCE = 2.0
"""Seconds after which a launcher has ended the ranks of a job in which one has failed."""
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        autocompletion=engines,
        help="the engine that runs the plan: threads, torch, jax, spmd, ray, apart",
    ),
]
EngineOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="an option of the engine, such as workers=2; repeat it for several",
    ),
]


def engine_from(name: str, texts: Sequence[str] | None) -> Engine:
    """The engine of a name, with options as they are written on the command line.

    Where a job has several ranks, all run the same command, and only the first says anything.
    """
    engine = find_engine(name, options_from(texts or ()))
    if not is_first(engine):
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the process lives
    return engine


def is_first(engine: Engine) -> bool:
    """Whether this process is the one of its job that prints and writes files."""
    return not getattr(engine, "rank", 0)


def launched_rank() -> int | None:
    """Which rank a launcher has made this process, as its environment tells; None without one."""
    torch = ("RANK",) if "WORLD_SIZE" in os.environ else ()
    given = next((os.environ[name] for name in (*torch, *_RANKS) if name in os.environ), "")
    return int(given) if given.isdecimal() else None


def let_first_speak() -> None:
    """Wait before an error is told, unless this is the first rank: it may be telling the same.

    Where it does, the launcher ends this process meanwhile; an error of this rank alone is told.
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


def options_from(texts: Sequence[str]) -> dict[str, int | float | bool | str]:
    """Options by name, each value read as what it looks like.

    >>> options_from(["workers=2", "share=0.5", "pin=true", "host=10.0.0.1"])
    {'workers': 2, 'share': 0.5, 'pin': True, 'host': '10.0.0.1'}
    """
    found = pairs_from("--option", "workers=2", texts)
    return {name: _value(value) for name, value in found.items()}


def _value(text: str) -> int | float | bool | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text

"""`--engine` and `--option`, which the commands that run something share."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eindecomp.cli.completion import engines
from eindecomp.cli.texts import pairs_from
from eindecomp.engines.engine import find_engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.engines.engine import Engine

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

"""What several commands share: the files that they read and write, `--json`, and `--engine`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from eindecomp.cli.texts import pairs_from
from eindecomp.engines.engine import Engine, engine_names, find_engine
from eindecomp.engines.whole_files import check_writable
from eindecomp.errors import EinDecompError
from eindecomp.graph.graph import Graph
from eindecomp.graph.text.elaborate import parse
from eindecomp.store.plan_file import PLAN_FILE, from_json


def to_write(*names: str, help: str) -> Any:  # noqa: A002 - as typer calls it
    """An option that takes a file to write, refused at once if it cannot be written later."""
    return typer.Option(*names, metavar="FILE", callback=_check, help=help)


def _check(ctx: typer.Context, path: Path | None) -> Path | None:
    if path is None or ctx.resilient_parsing:  # which is completion: it leaves files alone
        return path
    if str(path) == "-":
        raise typer.BadParameter("name a file: what goes to standard output is printed by --json")
    check_writable(path)
    return path


AnyFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="a graph (.ein) or a saved plan (.json); - is standard input"
    ),
]
Output = Annotated[Path | None, to_write("-o", "--output", help="write the result to this file")]
Trace = Annotated[
    Path | None, to_write("--trace", help="write a trace for Perfetto or Chrome to this file")
]
Json = Annotated[
    bool, typer.Option("--json", help="print one JSON object, and nothing else, on standard output")
]
EngineName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        autocompletion=engine_names,
        help="the engine that runs the plan: threads, torch, jax, spmd, ray, apart",
    ),
]
EngineOptions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="an option of the engine, as workers=2; repeat it for several",
    ),
]


def read(file: str) -> Graph | bytes:
    """The graph that a file holds, or the bytes of what looks like JSON, as a saved plan does."""
    if file == "-":
        data = sys.stdin.buffer.read(PLAN_FILE.max_bytes + 1)
    else:
        with Path(file).open("rb") as opened:
            data = opened.read(PLAN_FILE.max_bytes + 1)
    if data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
        return data
    if not data.strip():
        raise EinDecompError(f"{name_of(file)} is empty: a graph or a saved plan is expected")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{name_of(file)} is not UTF-8 text: {error.reason} at byte {error.start}"
        raise EinDecompError(message) from None
    return parse(text, name_of(file))


def name_of(file: str) -> str:
    """What messages call a file."""
    return "standard input" if file == "-" else file


def tensor_names(ctx: typer.Context) -> list[str]:
    """The tensors of the graph or plan that is given before, which a shell completes."""
    # Words before an option whose value is still missing are not taken as arguments yet.
    file = ctx.params.get("file") or next(iter(ctx.args), "-")
    if file == "-":
        return []
    try:
        given = read(file)
        graph = from_json(given, file).graph if isinstance(given, bytes) else given
    except (EinDecompError, OSError):  # which the command itself tells
        return []
    return list(graph.vertices)


def refuse_overwriting(params: Mapping[str, Any]) -> None:
    """Refuse options of a command that would write to a file which it reads."""
    texts = [params.get("file") or "", *(params.get("data") or ())]
    read = {Path(text.rpartition("=")[2].partition("#")[0]).resolve() for text in texts if text}
    for path in params.values():
        if isinstance(path, Path) and path.resolve() in read:
            raise typer.BadParameter(f"{path} is read: name another file to write")


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
    given = pairs_from("--option", "workers=2", texts)
    return {name: _value(value) for name, value in given.items()}


def _value(text: str) -> int | float | bool | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text

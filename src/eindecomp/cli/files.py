"""The files that commands are given: graphs and saved plans, and places to write to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eindecomp.engines.whole_files import check_writable
from eindecomp.errors import EinDecompError
from eindecomp.graph.text.elaborate import parse
from eindecomp.store.plan_file import PLAN_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.graph import Graph

GraphFile = Annotated[
    str, typer.Argument(metavar="FILE", help="a graph (.ein); - reads it from standard input")
]
AnyFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="a graph (.ein) or a saved plan (.json); - is standard input"
    ),
]
PlanFile = Annotated[
    str, typer.Argument(metavar="FILE", help="a saved plan (.json); - is standard input")
]
_GZIP = b"\x1f\x8b"


def read(file: str) -> Graph | bytes:
    """The graph that a file holds, or the bytes of what looks like JSON, as a saved plan does."""
    if file == "-":
        data = sys.stdin.buffer.read(PLAN_FILE.max_bytes + 1)
    else:
        with Path(file).open("rb") as opened:
            data = opened.read(PLAN_FILE.max_bytes + 1)
    if data.startswith(_GZIP):
        raise EinDecompError(f"{name_of(file)} is compressed: unpack it first, by gunzip")
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


def to_write(*names: str, help: str) -> Any:  # noqa: A002 - as typer calls it
    """An option that takes a file to write, refused at once if it cannot be written later."""
    return typer.Option(*names, metavar="FILE", callback=_check, help=help)


def refuse_overwriting(params: Mapping[str, Any]) -> None:
    """Refuse options of a command that would write to a file which it reads."""
    texts = [params.get("file") or "", *(params.get("data") or ())]
    read = {Path(text.rpartition("=")[2].partition("#")[0]).resolve() for text in texts if text}
    for path in params.values():
        if isinstance(path, Path) and path.resolve() in read:
            raise typer.BadParameter(f"{path} is read: name another file to write")


def _check(ctx: typer.Context, path: Path | None) -> Path | None:
    if path is None or ctx.resilient_parsing:  # which is completion: it leaves files alone
        return path
    if str(path) == "-":
        raise typer.BadParameter("name a file: what goes to standard output is printed by --json")
    check_writable(path)
    return path

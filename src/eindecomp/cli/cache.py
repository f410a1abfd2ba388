"""`eindecomp cache`: the compiled code that is kept on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from eindecomp.cli.request import Json
from eindecomp.kernels import cache as kept
from eindecomp.planner.costs.byte_sizes import show_bytes

if TYPE_CHECKING:
    from eindecomp.kernels.cache import Usage


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="remove all of it")] = False,
    json: Json = False,
) -> None:
    """Show or remove the compiled code that is kept on disk.

    It is compiled again when needed. The environment variable EINDECOMP_CACHE_MB is the limit in
    MiB; the least recently used goes first. With 0 nothing is stored or loaded; what is there stays
    until --clear.
    """
    before = kept.clear() if clear else kept.usage()
    if json:
        typer.echo(orjson.dumps(_record(before) | {"cleared": clear}))
    elif before.folder is None:
        typer.echo("nothing is kept: there is no folder that can be trusted and written to")
    else:
        size = f"{before.files} files, {show_bytes(before.nbytes)}"
        told = f"removed {size}" if clear else f"{size} of at most {show_bytes(before.limit)}"
        typer.echo(f"{before.folder}: {told}")


def _record(usage: Usage) -> dict[str, Any]:
    folder = None if usage.folder is None else str(usage.folder)
    return {"folder": folder, "files": usage.files, "bytes": usage.nbytes, "limit": usage.limit}

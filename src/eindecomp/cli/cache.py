"""`eindecomp cache`: the compiled code that is kept on disk."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer

from eindecomp.cli.options import Json
from eindecomp.kernels import cache as kept
from eindecomp.planner.costs.byte_sizes import show_bytes


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="remove all of it")] = False,
    json: Json = False,
) -> None:
    """Show or remove the compiled code that is kept on disk.

    It is compiled again when needed. The environment variable EINDECOMP_CACHE_MB is the limit in
    MiB; the least recently used goes first. With 0 nothing is stored or loaded; what is there stays
    until --clear.

    Examples:
        eindecomp cache
        eindecomp cache --clear
    """
    before = kept.clear() if clear else kept.usage()
    if json:
        folder = None if before.folder is None else str(before.folder)
        record = {"files": before.files, "bytes": before.nbytes, "limit": before.limit}
        typer.echo(orjson.dumps({"folder": folder, **record, "cleared": clear}))
    elif before.folder is None:
        typer.echo("nothing is kept: there is no folder that can be trusted and written to")
    else:
        size = f"{before.files} files, {show_bytes(before.nbytes)}"
        told = f"removed {size}" if clear else f"{size} of at most {show_bytes(before.limit)}"
        typer.echo(f"{before.folder}: {told}")

"""`eindecomp report`: all about a plan in one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer

from eindecomp.cli import request as ask
from eindecomp.cli.files import AnyFile, to_write
from eindecomp.cli.progress import interruptible, status_line


@ask.planning
def report(
    file: AnyFile,
    asked: ask.Request,
    output: Annotated[Path, to_write("-o", "--output", help="write the report to this .html file")],
    compare: Annotated[
        bool,
        typer.Option(
            "--compare/--no-compare", help="plan under the usual strategies too, or leave them out"
        ),
    ] = True,
    json: ask.Json = False,
) -> None:
    """Write all about a plan to one HTML file, to be opened in a browser.

    Takes a saved plan, or plans a graph first: the graph to zoom and click, what moves, costs,
    alternatives, and the usual strategies side by side, as many as half a minute is enough for.
    --machine is also where a saved plan is timed. The file needs no network.
    """
    with interruptible("no report was written"):
        plan = asked.plan_timed(file)
        with status_line() as say:
            say("comparing strategies" if compare else "writing the report")
            plan.report(output, compare=compare, machine=asked.machine)
    if json:
        size = output.stat().st_size if output.is_file() else None
        typer.echo(orjson.dumps({"written": str(output), "bytes": size, "compared": compare}))
    else:
        typer.echo(f"written: {output}")

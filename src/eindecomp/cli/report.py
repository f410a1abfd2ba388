"""`eindecomp report`: all about a plan in one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer

from eindecomp.cli import request as ask
from eindecomp.cli.files import AnyFile, to_write
from eindecomp.cli.progress import interruptible, live_line, status_line
from eindecomp.show.compare import compare as compare_plan
from eindecomp.show.report.write import report as write_report


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
    alternatives, and the usual strategies side by side. --machine is also where a saved plan is
    timed, and --time applies to each plan. The file needs no network.
    """
    with interruptible("no report was written"):
        plan = asked.plan_timed(file)
        rivals = False
        if compare:
            with live_line() as on_event:
                rivals = compare_plan(plan, time_limit=asked.time, on_event=on_event)
        with status_line() as say:
            say("writing the report")
            write_report(plan, output, compare=rivals, machine=asked.machine)
    if json:
        strategies = [row.name for row in rivals] if rivals else []
        size = output.stat().st_size if output.is_file() else None
        about = {"written": str(output), "bytes": size, "strategies": strategies}
        typer.echo(orjson.dumps(about))
    else:
        typer.echo(f"written: {output}")

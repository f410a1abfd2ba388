"""`eindecomp plan`: cut a graph over devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eindecomp.cli import request as ask
from eindecomp.cli.files import GraphFile, name_of, read, to_write
from eindecomp.cli.terminal import columns, interruptible, status_line
from eindecomp.engines.whole_files import write_whole
from eindecomp.errors import PlanError
from eindecomp.store.plan_file import from_json, to_json


@ask.planning
def plan(
    file: GraphFile,
    asked: ask.Request,
    output: Annotated[
        Path | None, to_write("-o", "--output", help="write the plan to this JSON file")
    ] = None,
    json: ask.Json = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="print the whole explanation even with -o")
    ] = False,
) -> None:
    """Split a graph over devices so that the least data moves.

    Every vertex is cut so that, over the whole graph, the objective is as small as can be; a bound
    that is proved says how far from the optimum the plan can be at most. Prints the plan's
    explanation; with -o only its summary, with --json the plan itself.
    """
    with interruptible():
        graph = read(file)
        if isinstance(graph, bytes):
            from_json(graph, name_of(file))  # which says so if it is none
            raise PlanError(f"{name_of(file)} is a plan already: explain or compare it")
        made = asked.plan(graph)
        written = to_json(made) if output is not None or json else b""
        with status_line() as say:
            say("looking for alternatives")
            shown = made.explain(columns()) if explain or not written else str(made)
    if output is not None:
        write_whole(output, written)
    typer.echo(written if json else shown)

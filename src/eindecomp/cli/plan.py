"""`eindecomp plan`: cut a graph over devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eindecomp.cli import request as ask
from eindecomp.cli.progress import interruptible
from eindecomp.errors import PlanError
from eindecomp.store.plan_file import from_json, to_json
from eindecomp.store.whole_file import check_writable, write_whole


def plan(
    file: ask.GraphFile,
    devices: ask.Devices = None,
    objective: ask.Objective = "bytes",
    solver: ask.Solver = "auto",
    strategy: ask.Strategy = None,
    inputs: ask.Inputs = "free",
    mesh: ask.MeshAxes = None,
    memory: ask.Memory = None,
    machine: ask.MachineName = None,
    pin: ask.Pins = None,
    tie: ask.Ties = None,
    ties: ask.KeepTies = True,
    rewrite: ask.Rewrite = True,
    work: ask.Work = ask.DEFAULT_WORK,
    pieces: ask.Pieces = "balanced",
    time: ask.Time = 45,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="write the plan to this JSON file")
    ] = None,
    json: ask.Json = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="print the whole explanation even with -o")
    ] = False,
) -> None:
    """Split every vertex of a graph over devices so that the least data moves, with a proved bound.

    Prints the plan's explanation; with -o only its summary, with --json the plan itself.
    """
    if output is not None:
        check_writable(output)
    asked = ask.Request(
        devices, objective, solver, strategy, inputs, mesh, memory, machine, rewrite, time,
        tuple(pin or ()), work, tuple(tie or ()), ties, pieces,
    )  # fmt: skip
    with interruptible():
        graph = ask.read(file)
        if isinstance(graph, bytes):
            from_json(graph, ask.name_of(file))  # which says so if it is none
            raise PlanError(f"{ask.name_of(file)} is a plan already: explain or compare it")
        made = asked.plan(graph)
        written = to_json(made) if output is not None or json else b""
        shown = made.explain() if explain or not written else str(made)
    if output is not None:
        write_whole(output, written)
    typer.echo(written if json else shown)

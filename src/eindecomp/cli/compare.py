"""`eindecomp compare`: a plan against the usual strategies."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from eindecomp.cli import request as ask
from eindecomp.cli.progress import interruptible, live_line
from eindecomp.cli.strategy import strategy_from
from eindecomp.show.compare import compare as compare_plan

if TYPE_CHECKING:
    from eindecomp.planner.comparison import Compared


def compare(
    file: ask.AnyFile,
    devices: ask.Devices = None,
    objective: ask.Objective = "bytes",
    solver: ask.Solver = "auto",
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
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="a strategy to compare with, as plan's --strategy; by default all that apply",
        ),
    ] = None,
    json: ask.Json = False,
) -> None:
    """Compare a plan with the strategies that apply to its graph, priced by the same model.

    Takes a saved plan, or plans a graph first. --time applies to each plan.
    """
    asked = ask.Request(
        devices, objective, solver, None, inputs, mesh, memory, machine, rewrite, time,
        tuple(pin or ()), work, tuple(tie or ()), ties, pieces,
    )  # fmt: skip
    chosen = {text: strategy_from(text) for text in against} if against else None
    with interruptible():
        plan = asked.plan_of(file)
        with live_line() as on_event:
            found = compare_plan(plan, chosen, time_limit=time, on_event=on_event)
    if json:
        rows = [_row_json(row) for row in found]
        typer.echo(orjson.dumps({"objective": found.objective, "rows": rows}))
    else:
        typer.echo(str(found))


def _row_json(row: Compared) -> dict[str, Any]:
    finite = row.ratio is None or isfinite(row.ratio)
    return asdict(row) | {"ratio": row.ratio if finite else "inf"}

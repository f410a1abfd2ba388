"""`eindecomp simulate`: how long a plan takes on a machine that need not be there."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import orjson
import typer

from eindecomp.api.compile import simulate as simulate_plan
from eindecomp.cli import request as ask
from eindecomp.cli.files import AnyFile, to_write
from eindecomp.cli.terminal import columns, interruptible, status_line
from eindecomp.show.simulated import table_of

if TYPE_CHECKING:
    from eindecomp.tra.simulation.run import SimulatedRun


@ask.planning
def simulate(
    file: AnyFile,
    asked: ask.Request,
    gather: Annotated[
        Literal["ring", "doubling", "direct"],
        typer.Option(help="all-gathers: rings or doubling on each level, or all messages at once"),
    ] = "ring",
    reduce: Annotated[
        Literal["direct", "ring", "doubling"],
        typer.Option(help="reductions: each block to who combines it, or all-gathers backwards"),
    ] = "direct",
    cards: Annotated[
        Literal["device", "node"],
        typer.Option(help="whether each device has links to other nodes, or its node has"),
    ] = "device",
    overlap: Annotated[
        bool,
        typer.Option(help="whether communication runs beside kernels, or one step after another"),
    ] = True,
    trace: Annotated[
        Path | None, to_write("--trace", help="write a trace for Perfetto or Chrome to this file")
    ] = None,
    traced: Annotated[
        list[int] | None,
        typer.Option(
            "--trace-device",
            metavar="NUMBER",
            help="a device that the trace shows, by default 0; repeat it for several",
        ),
    ] = None,
    json: ask.Json = False,
) -> None:
    """Simulate how long a plan takes on a machine, and why.

    Takes a saved plan, or plans a graph first. --machine is also where a saved plan is simulated.
    """
    with interruptible():
        plan = asked.plan_timed(file)
        with status_line() as say:
            say("simulating")
            run = simulate_plan(
                plan, asked.machine, gather=gather, reduce=reduce, cards=cards, overlap=overlap
            )
        if trace is not None:
            run.trace(trace, traced or (0,))
        shown = orjson.dumps(_simulated(run)) if json else table_of(run, columns())
    typer.echo(shown)


def _simulated(run: SimulatedRun) -> dict[str, Any]:
    return {
        "seconds": run.seconds,
        "devices": run.devices,
        "bytes_moved": run.bytes_moved,
        "computing": run.computing.tolist(),
        "exposed": run.exposed.tolist(),
        "idle": run.idle.tolist(),
        "levels": [
            {"name": level.name, "bytes": level.bytes, "busy": level.busy} for level in run.levels
        ],
        "critical_path": [asdict(step) for step in run.critical_path],
    }

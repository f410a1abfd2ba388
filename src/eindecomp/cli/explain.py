"""`eindecomp explain`: a plan in words."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import orjson
import typer

from eindecomp.cli import request as ask
from eindecomp.cli.progress import interruptible
from eindecomp.show.alternatives import alternatives
from eindecomp.show.rows import folded_rows, rows_of

if TYPE_CHECKING:
    from eindecomp.planner.plan import Plan
    from eindecomp.show.rows import Row


def explain(
    file: ask.AnyFile,
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
    json: ask.Json = False,
) -> None:
    """Explain how a plan cuts vertices, what moves where, what it costs, and the alternatives.

    Takes a saved plan, or plans a graph first.
    """
    asked = ask.Request(
        devices, objective, solver, strategy, inputs, mesh, memory, machine, rewrite, time,
        tuple(pin or ()), work, tuple(tie or ()), ties, pieces,
    )  # fmt: skip
    with interruptible():
        plan = asked.plan_of(file)
        shown = orjson.dumps(_explained(plan)) if json else plan.explain()
    typer.echo(shown)


def _explained(plan: Plan) -> dict[str, Any]:
    return {
        "summary": str(plan),
        "objective": plan.objective,
        "mesh": list(zip(plan.mesh.names, plan.mesh.sizes, strict=True)),
        "cost": plan.cost,
        "bound": plan.bound,
        "gap": plan.gap,
        "vertices": [_row_json(row) for row in rows_of(plan)],
        "runners_up": [
            asdict(other) | {"more": other.more}
            for _, other in alternatives(plan, folded_rows(plan))
            if other is not None
        ],
    }


def _row_json(row: Row) -> dict[str, Any]:
    values = asdict(row) | {"cost": row.cost}
    values["further"] = values.pop("second")  # what this output has always called it
    return values

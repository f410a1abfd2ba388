"""`eindecomp explain`: a plan in words."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import orjson
import typer

from eindecomp.cli import request as ask
from eindecomp.cli.files import AnyFile
from eindecomp.cli.plain import columns
from eindecomp.cli.progress import interruptible, status_line
from eindecomp.show.alternatives import alternatives
from eindecomp.show.rows import folded_rows, rows_of

if TYPE_CHECKING:
    from eindecomp.planner.plan import Plan
    from eindecomp.show.rows import Row


@ask.planning
def explain(
    file: AnyFile,
    asked: ask.Request,
    json: ask.Json = False,
) -> None:
    """Explain a plan: its cuts, what moves where, costs, alternatives.

    Takes a saved plan, or plans a graph first.
    """
    with interruptible():
        plan = asked.plan_of(file)
        with status_line() as say:
            say("looking for alternatives")
            shown = orjson.dumps(_explained(plan)) if json else plan.explain(columns())
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
    values = asdict(row) | {"cost": row.cost, "calls": row.calls * row.pieces * row.copies}
    values["further"] = values.pop("second")  # what this output has always called it
    return values

"""`eindecomp compare`: a plan against the usual strategies."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from eindecomp.cli import request as ask
from eindecomp.cli.completion import strategies
from eindecomp.cli.files import AnyFile
from eindecomp.cli.plain import columns
from eindecomp.cli.progress import interruptible, live_line
from eindecomp.cli.strategy import strategy_from
from eindecomp.show.compare import compare as compare_plan
from eindecomp.show.compare import table_of

if TYPE_CHECKING:
    from eindecomp.planner.comparison import Compared


@ask.planning
def compare(
    file: AnyFile,
    asked: ask.Request,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME",
            autocompletion=strategies,
            help="a strategy to compare with, as plan's --strategy; by default all that apply",
        ),
    ] = None,
    json: ask.Json = False,
) -> None:
    """Compare a plan with the usual strategies.

    Takes a saved plan, or plans a graph first. The strategies are those that apply to the graph,
    priced by the same model. --time applies to each plan.
    """
    chosen = {text: strategy_from(text) for text in against} if against else None
    with interruptible():
        plan = asked.plan_of(file)
        with live_line() as on_event:
            found = compare_plan(plan, chosen, time_limit=asked.time, on_event=on_event)
    if json:
        rows = [_row_json(row) for row in found]
        typer.echo(orjson.dumps({"objective": found.objective, "rows": rows}))
    else:
        typer.echo(table_of(found, columns()))


def _row_json(row: Compared) -> dict[str, Any]:
    finite = row.ratio is None or isfinite(row.ratio)
    return asdict(row) | {"ratio": row.ratio if finite else "inf"}

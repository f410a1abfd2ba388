"""`eindecomp explain | compare | draw | report`: ways to look at a plan."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.console import Console

from eindecomp.cli import request as ask
from eindecomp.cli.completion import strategies, tensors
from eindecomp.cli.files import AnyFile, to_write
from eindecomp.cli.terminal import columns, interruptible, status_line
from eindecomp.cli.texts import strategy_from
from eindecomp.show.compare import compare as compare_plan
from eindecomp.show.compare import table_of
from eindecomp.show.movements import alternatives
from eindecomp.show.progress import solving
from eindecomp.show.rows import folded_rows, rows_of

if TYPE_CHECKING:
    from eindecomp.layout.tiling import TileGrid
    from eindecomp.planner.comparison import Compared
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
        "vertices": [_explained_row(row) for row in rows_of(plan)],
        "runners_up": [
            asdict(other) | {"more": other.more}
            for _, other in alternatives(plan, folded_rows(plan))
            if other is not None
        ],
    }


def _explained_row(row: Row) -> dict[str, Any]:
    values = asdict(row) | {"cost": row.cost, "calls": row.calls * row.pieces * row.copies}
    values["further"] = values.pop("second")  # what this output has always called it
    return values


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
        with solving(None) as on_event:
            found = compare_plan(plan, chosen, time_limit=asked.time, on_event=on_event)
    if json:
        rows = [_compared_json(row) for row in found]
        typer.echo(orjson.dumps({"objective": found.objective, "rows": rows}))
    else:
        typer.echo(table_of(found, columns()))


def _compared_json(row: Compared) -> dict[str, Any]:
    finite = row.ratio is None or isfinite(row.ratio)
    return asdict(row) | {"ratio": row.ratio if finite else "inf"}


@ask.planning
def draw(
    file: AnyFile,
    asked: ask.Request,
    output: Annotated[
        Path | None,
        to_write("-o", "--output", help="write the picture to this .svg file"),
    ] = None,
    tiles: Annotated[
        str | None,
        typer.Option(
            metavar="TENSOR",
            autocompletion=tensors,
            help="draw the tiles of a tensor and who holds them; as text where there is no -o",
        ),
    ] = None,
    unfolded: Annotated[
        bool, typer.Option("--unfolded", help="draw repeated layers one by one")
    ] = False,
    json: ask.Json = False,
) -> None:
    """Draw a plan, or the tiles of a tensor.

    Takes a saved plan, or plans a graph first. Boxes are vertices with their cuts, and lines are as
    thick as the bytes that move along them.
    """
    if tiles is None and output is None:
        raise typer.BadParameter("say where the picture goes: -o plan.svg; --tiles can be printed")
    with interruptible("nothing was drawn"):
        plan = asked.plan_of(file)
        with status_line() as say:
            say("drawing")
            grid: TileGrid | None = None
            if tiles is not None:
                grid = plan.draw_tiles(tiles, output)
            else:
                plan.draw(output, folded=not unfolded)
    if json:
        typer.echo(orjson.dumps(_drawn(grid, output)))
    elif output is not None:
        typer.echo(f"written: {output}")
    else:
        Console(width=columns()).print(grid)


def _drawn(grid: TileGrid | None, output: Path | None) -> dict[str, Any]:
    written = None if output is None else str(output)
    if grid is None:
        return {"drawn": "plan", "written": written}
    layouts = [_layout(each) for each in (grid, *grid.others)]
    return {"drawn": "tiles", "tensor": grid.tensor, "layouts": layouts, "written": written}


def _layout(grid: TileGrid) -> dict[str, Any]:
    tiles = [{"box": grid.box(tile), "devices": own} for tile, own in grid.holders.items()]
    return {"role": grid.role, "layout": grid.layout, "tiles": tiles}


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
            plan.report(output, compare=compare)
    if json:
        size = output.stat().st_size if output.is_file() else None
        typer.echo(orjson.dumps({"written": str(output), "bytes": size, "compared": compare}))
    else:
        typer.echo(f"written: {output}")

"""`eindecomp draw`: a plan as a picture, or the tiles of a tensor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.console import Console

from eindecomp.cli import request as ask
from eindecomp.cli.completion import tensors
from eindecomp.cli.files import AnyFile, to_write
from eindecomp.cli.plain import columns
from eindecomp.cli.progress import interruptible, status_line

if TYPE_CHECKING:
    from eindecomp.layout.tiling import TileGrid


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
    vertex: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=tensors,
            help="draw the dataflow of one vertex, from tiles of its inputs to those of its result",
        ),
    ] = None,
    unfolded: Annotated[
        bool, typer.Option("--unfolded", help="draw repeated layers one by one")
    ] = False,
    json: ask.Json = False,
) -> None:
    """Draw a plan, the tiles of a tensor, or the dataflow of a vertex.

    Takes a saved plan, or plans a graph first. Boxes are vertices with their cuts, and lines are as
    thick as the bytes that move along them.
    """
    if tiles is not None and vertex is not None:
        raise typer.BadParameter("--tiles and --vertex are two pictures: draw one at a time")
    if tiles is None and output is None:
        raise typer.BadParameter("say where the picture goes: -o plan.svg; --tiles can be printed")
    with interruptible("nothing was drawn"):
        plan = asked.plan_of(file)
        with status_line() as say:
            say("drawing")
            grid: TileGrid | None = None
            if tiles is not None:
                grid = plan.draw_tiles(tiles, output)
            elif vertex is not None:
                plan.draw_vertex(vertex, output)
            else:
                plan.draw(output, folded=not unfolded)
    if json:
        typer.echo(orjson.dumps(_record(vertex, grid, output)))
    elif output is not None:
        typer.echo(f"written: {output}")
    else:
        Console(width=columns()).print(grid)


def _record(vertex: str | None, grid: TileGrid | None, output: Path | None) -> dict[str, Any]:
    written = None if output is None else str(output)
    if grid is None:
        drawn = {"drawn": "plan"} if vertex is None else {"drawn": "vertex", "vertex": vertex}
        return drawn | {"written": written}
    layouts = [_layout(each) for each in (grid, *grid.others)]
    return {"drawn": "tiles", "tensor": grid.tensor, "layouts": layouts, "written": written}


def _layout(grid: TileGrid) -> dict[str, Any]:
    tiles = [{"box": grid.box(tile), "devices": own} for tile, own in grid.holders.items()]
    return {"role": grid.role, "layout": grid.layout, "tiles": tiles}

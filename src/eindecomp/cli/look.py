"""`eindecomp plan | explain | compare | draw | report | simulate`: make a plan, and look at it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
import typer
from rich.console import Console

from eindecomp.api.compile import simulate as simulate_plan
from eindecomp.cli.options import (
    AnyFile,
    Json,
    Output,
    Trace,
    argument,
    flag,
    name_of,
    option,
    read,
    strategy_from,
    strategy_names,
    to_write,
)
from eindecomp.cli.request import Request, options_from_fields
from eindecomp.cli.terminal import columns, status_line
from eindecomp.engines.whole_files import write_whole
from eindecomp.errors import PlanError
from eindecomp.layout.tiling import TileGrid
from eindecomp.planner.plan import Plan
from eindecomp.show.compare import compare as compare_plan
from eindecomp.show.compare import table_of as compared_table
from eindecomp.show.movements import alternatives
from eindecomp.show.progress import solving
from eindecomp.show.rows import folded_rows, rows_of
from eindecomp.show.simulated import table_of as simulated_table
from eindecomp.store.plan_file import from_json, to_json


@options_from_fields
def plan(
    file: Annotated[str, argument("FILE", "a graph (.ein); - reads it from standard input")],
    asked: Request,
    output: Output = None,
    json: Json = False,
    explain: Annotated[bool, flag("--explain", "print the whole explanation even with -o")] = False,
) -> None:
    """Split a graph over devices so that the least data moves.

    Every vertex is cut so that, over the whole graph, the objective is as small as can be; a bound
    that is proved says how far from the optimum the plan can be at most. Prints the plan's
    explanation; with -o, which writes the plan as JSON, only its summary, with --json the plan
    itself.

    Examples:
        eindecomp plan model.ein -p 8
        eindecomp plan model.ein --mesh node=4,gpu=8 --memory 70GB -o plan.json
        eindecomp plan model.ein -p 8 --objective time --machine gpu-server
    """
    graph = read(file)
    if isinstance(graph, bytes):
        from_json(graph, name_of(file))  # which says so if it is none
        raise PlanError(f"{name_of(file)} is a plan already: explain or compare it")
    made = asked.plan(graph)
    written = to_json(made) if output is not None or json else b""
    with status_line("looking for alternatives"):
        shown = made.explain(columns()) if explain or not written else str(made)
    if output is not None:
        write_whole(output, written)
    typer.echo(written if json else shown)


@options_from_fields
def explain(file: AnyFile, asked: Request, json: Json = False) -> None:
    """Explain a plan: its cuts, what moves where, costs, alternatives.

    Takes a saved plan, or plans a graph first.

    Examples:
        eindecomp explain plan.json
        eindecomp explain model.ein -p 8 --strategy megatron --json
    """
    plan = asked.plan_of(file)
    with status_line("looking for alternatives"):
        shown = orjson.dumps(_explained(plan)) if json else plan.explain(columns())
    typer.echo(shown)


def _explained(plan: Plan) -> dict[str, Any]:
    vertices = [
        asdict(row) | {"cost": row.cost, "calls": row.calls * row.pieces * row.copies}
        for row in rows_of(plan)
    ]
    for vertex in vertices:
        vertex["further"] = vertex.pop("second")  # what this output has always called it
    return {
        "summary": str(plan),
        "objective": plan.objective,
        "mesh": list(zip(plan.mesh.names, plan.mesh.sizes, strict=True)),
        "cost": plan.cost,
        "bound": plan.bound,
        "gap": plan.gap,
        "least_of_any": plan.least_of_any,
        "fewer_devices": None if plan.fewer_devices is None else asdict(plan.fewer_devices),
        "vertices": vertices,
        "runners_up": [
            asdict(other) | {"more": other.more}
            for _, other in alternatives(plan, folded_rows(plan))
            if other is not None
        ],
    }


@options_from_fields
def compare(
    file: AnyFile,
    asked: Request,
    against: Annotated[
        list[str] | None,
        option(
            "NAME",
            "a strategy to compare with, as plan's --strategy; by default all that apply",
            "--with",
            autocompletion=strategy_names,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Compare a plan with the usual strategies.

    Takes a saved plan, or plans a graph first. The strategies are those that apply to the graph,
    priced by the same model. --time applies to each plan.

    Examples:
        eindecomp compare plan.json
        eindecomp compare model.ein -p 8 --with megatron --with h,f --with sqrt
    """
    chosen = {text: strategy_from(text) for text in against} if against else None
    plan = asked.plan_of(file)
    with solving(None) as on_event:
        compared = compare_plan(plan, chosen, time_limit=asked.time, on_event=on_event)
    if not json:
        typer.echo(compared_table(compared, columns()))
        return
    rows = [asdict(row) for row in compared]
    for row in rows:
        if row["ratio"] is not None and not isfinite(row["ratio"]):
            row["ratio"] = "inf"  # which JSON has no number for
    typer.echo(orjson.dumps({"objective": compared.objective, "rows": rows}))


@options_from_fields
def draw(
    file: AnyFile,
    asked: Request,
    output: Output = None,
    tiles: Annotated[
        str | None,
        option(
            "TENSOR",
            "draw the tiles of a tensor and who holds them; as text where there is no -o",
        ),
    ] = None,
    unfolded: Annotated[bool, flag("--unfolded", "draw repeated layers one by one")] = False,
    json: Json = False,
) -> None:
    """Draw a plan, or the tiles of a tensor.

    Takes a saved plan, or plans a graph first, and writes an .svg file. Boxes are vertices with
    their cuts, and lines are as thick as the bytes that move along them.

    Examples:
        eindecomp draw plan.json -o plan.svg
        eindecomp draw model.ein -p 8 --tiles Z
        eindecomp draw model.ein -p 8 --tiles Z -o tiles.svg
    """
    if tiles is None and output is None:
        raise typer.BadParameter("say where the picture goes: -o plan.svg; --tiles can be printed")
    plan = asked.plan_of(file)
    drawn: dict[str, Any] = {"drawn": "plan"}
    grid: TileGrid | None = None
    with status_line("drawing"):
        if tiles is not None:
            grid = plan.draw_tiles(tiles, output)
            layouts = [_layout(each) for each in (grid, *grid.others)]
            drawn = {"drawn": "tiles", "tensor": grid.tensor, "layouts": layouts}
        else:
            plan.draw(output, folded=not unfolded)
    if json:
        written = None if output is None else str(output)
        typer.echo(orjson.dumps(drawn | {"written": written}))
    elif output is not None:
        typer.echo(f"written: {output}")
    else:
        Console(width=columns()).print(grid)


def _layout(grid: TileGrid) -> dict[str, Any]:
    tiles = [{"box": grid.box(tile), "devices": own} for tile, own in grid.holders.items()]
    return {"role": grid.role, "layout": grid.layout, "tiles": tiles}


@options_from_fields
def report(
    file: AnyFile,
    asked: Request,
    output: Annotated[Path, to_write("-o", "--output", help="write the report to this .html file")],
    compare: Annotated[
        bool,
        flag("--compare/--no-compare", "plan under the usual strategies too, or leave them out"),
    ] = True,
    json: Json = False,
) -> None:
    """Write all about a plan to one HTML file, to be opened in a browser.

    Takes a saved plan, or plans a graph first: the graph to zoom and click, what moves, costs,
    alternatives, and the usual strategies side by side, as many as half a minute is enough for.
    --machine is also where a saved plan is timed. The file needs no network.

    Examples:
        eindecomp report plan.json -o plan.html
        eindecomp report model.ein -p 8 --no-compare -o plan.html
    """
    plan = asked.plan_of(file, timed=True)
    with status_line("comparing strategies" if compare else "writing the report"):
        plan.report(output, compare=compare)
    if json:
        size = output.stat().st_size if output.is_file() else None
        typer.echo(orjson.dumps({"written": str(output), "bytes": size, "compared": compare}))
    else:
        typer.echo(f"written: {output}")


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """How messages go through the network that is simulated."""

    gather: Annotated[
        Literal["ring", "doubling", "direct"] | None,
        typer.Option(help="moves: rings or doubling on each level, or all messages at once"),
    ] = None
    reduce: Annotated[
        Literal["ring", "doubling", "direct"] | None,
        typer.Option(help="reductions: all-gathers backwards, or each block to who combines it"),
    ] = None
    cards: Annotated[
        Literal["device", "node"],
        typer.Option(help="whether each device has links to other nodes, or its node has"),
    ] = "device"
    overlap: Annotated[
        bool | None,
        typer.Option(help="whether communication runs beside kernels, or one step after another"),
    ] = None


@options_from_fields
def simulate(
    file: AnyFile,
    network: NetworkOptions,
    asked: Request,
    trace: Trace = None,
    traced: Annotated[
        list[int] | None,
        option(
            "NUMBER",
            "a device that the trace shows, by default 0; repeat it for several",
            "--trace-device",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Simulate how long a plan takes on a machine, and why.

    Takes a saved plan, or plans a graph first. --machine is also where a saved plan is simulated.

    Examples:
        eindecomp simulate plan.json --machine gpu-server
        eindecomp simulate model.ein -p 8 --machine cpu-cluster --trace trace.json
    """
    plan = asked.plan_of(file, timed=True)
    with status_line("simulating"):
        run = simulate_plan(plan, asked.machine, **asdict(network))
    if trace is not None:
        run.trace(trace, traced or (0,))
    if not json:
        typer.echo(simulated_table(run, columns()))
        return

    def told(of: object, *names: str) -> dict[str, Any]:
        return {name: getattr(of, name) for name in names}

    record = {
        **told(run, "seconds", "devices", "bytes_moved", "computing", "exposed", "idle"),
        "levels": [told(level, "name", "bytes", "busy") for level in run.levels],
        "critical_path": run.critical_path,
    }
    typer.echo(orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY))

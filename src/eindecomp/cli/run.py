"""`eindecomp run`: compute a graph's outputs as planned."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from eindecomp.api.compile import plan_together
from eindecomp.api.compile import run as run_plan
from eindecomp.cli import request as ask
from eindecomp.cli.arrays import given_arrays, random_inputs, write_npz
from eindecomp.cli.engine import EngineName, EngineOptions, engine_from, is_first
from eindecomp.cli.files import AnyFile, read, to_write
from eindecomp.cli.terminal import columns, interruptible, status_line
from eindecomp.engines.whole_files import write_whole
from eindecomp.errors import InputError
from eindecomp.graph.evaluate import evaluate
from eindecomp.kernels.cache import limit
from eindecomp.lang.dtypes import Kind, kind
from eindecomp.planner.costs.byte_sizes import show_bytes
from eindecomp.show.trace import tracing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.engines.engine import Engine
    from eindecomp.engines.result import Result
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.plan import Plan

    Array = np.ndarray[Any, Any]


@ask.planning
def run(
    file: AnyFile,
    asked: ask.Request,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="data.npz|X=x.npy",
            help="arrays by name, in one file or one file each (.npy, .zarr, w.safetensors#name); "
            "s=0.5 for run-time scalars; repeat it for several",
        ),
    ] = None,
    random: Annotated[
        bool, typer.Option("--random", help="draw random inputs, the same for the same seed")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="seed of the random inputs; 0 by default"),
    ] = None,
    output: Annotated[
        Path | None, to_write("-o", "--output", help="write the outputs to this .npz file")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="compare with the reference; slow for large inputs")
    ] = False,
    trace: Annotated[
        Path | None, to_write("--trace", help="write a trace for Perfetto or Chrome to this file")
    ] = None,
    engine: EngineName = "threads",
    option: EngineOptions = None,
    json: ask.Json = False,
) -> None:
    """Compute a graph's outputs as planned, on this machine or many.

    Takes a saved plan, or plans a graph first; by default it runs on the cores of this machine, on
    others by --engine. Prints time, bytes moved and peak memory, and a line for each output.
    """
    _check_inputs(data, seed, random=random)
    _check_places(output, trace)
    limit()  # of the compiled code that is kept: refused before a plan is made
    runner = engine_from(engine, option)  # so is an engine that does not exist
    if not is_first(runner):
        trace = None
    # A trace that cannot be written must not cost the outputs: it comes last.
    with nullcontext() if trace is None else tracing(trace) as on_event:
        with interruptible("no outputs were written"):
            plan, graph = _planned(file, asked, runner)
            arrays = (
                random_inputs(plan.graph, seed or 0)
                if random
                else given_arrays(plan.graph, data or ())
            )
            result = run_plan(plan, arrays, runner, on_event=on_event)
            for name in result:  # which all ranks of a job gather together
                result[name]
            worst: dict[str, float] = {}
            if check and is_first(runner):
                with status_line() as say:
                    say("computing the reference")
                    worst = errors_of(result, graph, arrays)
        if output is not None and is_first(runner):
            write_whole(output, lambda opened: write_npz(opened, result))
        if json:
            typer.echo(orjson.dumps(_record(result, worst)))
        else:
            _show(result, worst, plan.graph)
    if not is_rounding(worst, plan.graph):
        raise InputError("the outputs differ from the reference by more than rounding")


def _check_inputs(data: list[str] | None, seed: int | None, *, random: bool) -> None:
    if random and data:
        raise typer.BadParameter("inputs come from --random or from --data, not from both")
    if not random and not data:
        raise typer.BadParameter("say where inputs come from: --random, or --data data.npz")
    if seed is not None and not random:
        raise typer.BadParameter("--seed is for --random")


def _check_places(output: Path | None, trace: Path | None) -> None:
    """Refuse now what could not be written after the run."""
    if output is not None and output.suffix == ".npy":
        raise typer.BadParameter(f"outputs go by name into one .npz file, not {output}")
    if output is not None and trace is not None and output.resolve() == trace.resolve():
        raise typer.BadParameter(f"two things cannot both be written to {output}")


def _planned(file: str, asked: ask.Request, runner: Engine) -> tuple[Plan, Graph]:
    """The plan for an engine, and the graph to check it against.

    That is the graph as it was written where a graph is given, so that rewriting it is checked too.
    """
    written: list[Graph] = []

    def make_plan() -> Plan:
        found = read(file)
        if isinstance(found, bytes):
            return asked.plan_from(found, file)
        written.append(found)
        return asked.for_engine(runner).plan(found)

    plan = plan_together(make_plan, runner)
    return plan, written[0] if written else plan.graph


def _record(result: Result, worst: Mapping[str, float]) -> dict[str, Any]:
    stats = result.stats
    return {
        "seconds": stats.seconds,
        "flops": stats.flops,
        "bytes_moved": stats.bytes_moved,
        "bytes_by_vertex": dict(stats.bytes_by_vertex),
        "peak_memory": stats.peak_memory,
        "tasks": stats.tasks,
        "workers": stats.workers,
        "recovered": list(stats.recovered),
        "cut_into": stats.cut_into,
        "outputs": {
            name: {"shape": list(array.shape), "dtype": array.dtype.name}
            | ({"nan": nan} if (nan := count_nan(array)) else {})
            | ({"error": _finite(worst[name])} if name in worst else {})
            for name, array in result.items()
        },
    }


def _finite(error: float) -> float | str:
    return "inf" if math.isinf(error) else error  # which JSON has no number for


def _show(result: Result, worst: Mapping[str, float], graph: Graph) -> None:
    stats = result.stats
    speed = stats.flops / stats.seconds / 1e9 if stats.seconds else 0.0
    typer.echo(
        f"{stats.tasks} tasks on {stats.workers} workers in {stats.seconds:.3g} s: "
        f"{speed:.3g} GFLOP/s, {show_bytes(stats.bytes_moved)} moved between devices, "
        f"peak memory {show_bytes(stats.peak_memory)} on the fullest device, where those "
        "that share memory count as one"
    )
    if stats.cut_into is not None:
        typer.echo(f"cut into {stats.cut_into} pieces, as larger tiles did not fit in memory")
    for line in stats.recovered:
        typer.echo(f"computed again: {line}")
    for name, array in result.items():
        if nan := count_nan(array):
            typer.echo(f"{name}: {nan:,} of {array.size:,} values are NaN, not numbers", err=True)
    table = Table("output", "shape", "dtype", *(["error"] if worst else []), box=None)
    for name, array in result.items():
        error = [f"{worst[name]:.1e}"] if worst else []
        table.add_row(escape(str(graph[name])), str(array.shape), array.dtype.name, *error)
    Console(width=columns()).print(table)


def errors_of(result: Result, graph: Graph, arrays: Mapping[str, Any]) -> dict[str, float]:
    """The largest error of each output, against what the graph means."""
    wanted = evaluate(graph, arrays)
    return {name: largest_error(result[name], right) for name, right in wanted.items()}


def is_rounding(errors: Mapping[str, float], graph: Graph) -> bool:
    """Whether all errors are as small as rounding makes them."""
    count = len(graph.vertices)
    return all(error <= _tolerance(graph[name], count) for name, error in errors.items())


def count_nan(array: Array) -> int:
    """How many values are not numbers."""
    return int(np.count_nonzero(array != array))


def largest_error(found: Array, wanted: Array) -> float:
    """The largest difference; of numbers that are rounded, relative to the largest one wanted."""
    if kind(wanted.dtype) in (Kind.BOOL, Kind.INT):
        differ = found != wanted
        # As Python's integers, which are exact at any size.
        apart = np.abs(found[differ].astype(object) - wanted[differ].astype(object))
        return float(apart.max(initial=0))
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    left, right = found.astype(wide), wanted.astype(wide)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(same, 0, np.abs(left - right))
    scale = np.abs(right[np.isfinite(right)]).max(initial=0)
    worst = float(apart.max(initial=0) / (scale or 1))
    return math.inf if math.isnan(worst) else worst


def _tolerance(vertex: Vertex, vertices: int) -> float:
    """How far apart results may be, the more vertices round on the way the further."""
    if kind(vertex.dtype) in (Kind.BOOL, Kind.INT):
        return 0.0
    bits = {2: 2e-2, 4: 1e-4}
    real = vertex.dtype.itemsize // (2 if kind(vertex.dtype) is Kind.COMPLEX else 1)
    return bits.get(real, 1e-10) * max(1.0, math.sqrt(vertices / 10))

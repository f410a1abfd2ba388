"""`eindecomp run`: compute a graph's outputs as planned."""

from __future__ import annotations

import math
import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import numpy as np
import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from eindecomp.api.run import run as run_plan
from eindecomp.api.together import plan_together
from eindecomp.cli import request as ask
from eindecomp.cli.arrays import given_arrays
from eindecomp.cli.engine import EngineName, EngineOptions, engine_from, is_first, ranks_in
from eindecomp.cli.progress import interruptible
from eindecomp.errors import InputError
from eindecomp.graph.evaluate import evaluate
from eindecomp.kernels.cache import limit
from eindecomp.lang.dtypes import Kind, kind
from eindecomp.planner.costs.byte_sizes import show_bytes
from eindecomp.show.trace import tracing
from eindecomp.store.whole_file import check_writable, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.engines.result import Result
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.plan import Plan

    Array = np.ndarray[Any, Any]


def run(
    file: ask.AnyFile,
    devices: Annotated[
        int | None,
        typer.Option(
            "-p",
            "--devices",
            min=1,
            help="how many devices; by default one for each core, on engine spmd for each rank",
        ),
    ] = None,
    objective: ask.Objective = "bytes",
    solver: ask.Solver = "auto",
    strategy: ask.Strategy = None,
    place: Annotated[
        ask.InputsName,
        typer.Option("--place", help="where inputs lie: --inputs of the other commands"),
    ] = "free",
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
    random: Annotated[
        bool, typer.Option("--random", help="draw random inputs, the same for the same seed")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, help="seed of the random inputs; 0 by default")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--inputs",
            metavar="data.npz|X=x.npy",
            help="arrays by name, in one file or one file each (.npy, .zarr, w.safetensors#name); "
            "s=0.5 for run-time scalars",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="write the outputs to this .npz file")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="compare with the reference; slow for large inputs")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="write a trace for Perfetto or Chrome to this file"),
    ] = None,
    engine: EngineName = "threads",
    option: EngineOptions = None,
    json: ask.Json = False,
) -> None:
    """Compute a graph's outputs as planned, by default on the cores of this machine.

    Prints time, bytes moved and peak memory, and a line for each output.
    """
    if random == bool(inputs):
        raise typer.BadParameter("say where inputs come from: --random, or --inputs data.npz")
    if seed is not None and not random:
        raise typer.BadParameter("--seed is for --random")
    _check_places(output, trace)
    limit()  # of the compiled code that is kept: refused before a plan is made
    runner = engine_from(engine, option)  # so is an engine that does not exist
    asked = ask.Request(
        devices, objective, solver, strategy, place, mesh, memory, machine, rewrite, time,
        tuple(pin or ()), work, tuple(tie or ()), ties, pieces,
    )  # fmt: skip
    ranks = ranks_in(runner)
    # A trace that cannot be written must not cost the outputs: it comes last.
    traced = None if trace is None or not is_first(runner) else trace
    with nullcontext() if traced is None else tracing(traced) as on_event:
        with interruptible("no outputs were written"):
            written: list[Graph] = []

            def make_plan() -> Plan:
                found = ask.read(file)
                is_graph = not isinstance(found, bytes)
                fits = asked.for_devices(ranks) if is_graph and ranks is not None else asked
                plan = fits.plan_from(found, file)
                # Against the graph as it was written, so that rewriting it is checked too.
                written.append(plan.graph if isinstance(found, bytes) else found)
                return plan

            plan = plan_together(make_plan, runner)
            if random:
                arrays = random_inputs(plan.graph, seed or 0)
            else:
                arrays = given_arrays(plan.graph, inputs or ())
            result = run_plan(plan, arrays, runner, on_event=on_event)
            for name in result:  # which all ranks of a job gather together
                result[name]
            is_speaking = is_first(runner)
            worst = {}
            if check and is_speaking:
                worst = _errors(result, evaluate(written[0], arrays))
        if output is not None and is_speaking:
            write_whole(output, lambda opened: write_npz(opened, result))
        if json:
            typer.echo(orjson.dumps(_record(result, worst)))
        else:
            _show(result, worst, plan.graph)
    count = len(plan.graph.vertices)
    if any(error > _tolerance(plan.graph[name], count) for name, error in worst.items()):
        raise InputError("the outputs differ from the reference by more than rounding")


def _check_places(output: Path | None, trace: Path | None) -> None:
    """Refuse now what could not be written after the run."""
    if output is not None and output.suffix == ".npy":
        raise typer.BadParameter(f"outputs go by name into one .npz file, not {output}")
    if output is not None and trace is not None and output.resolve() == trace.resolve():
        raise typer.BadParameter(f"outputs and trace cannot both be written to {output}")
    for path in (output, trace):
        if path is not None:
            check_writable(path)


def random_inputs(graph: Graph, seed: int) -> dict[str, Any]:
    """Numbers for all inputs and scalars of a graph, the same for a seed."""
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for vertex in graph.inputs:
        try:
            found[vertex.name] = _random_array(vertex, rng)
        except MemoryError as error:
            raise InputError(f"no memory for random numbers as {vertex}: {error}") from None
    return found | {name: dtype.type(1).item() for name, dtype in graph.scalars.items()}


def _random_array(vertex: Vertex, rng: np.random.Generator) -> Array:
    if kind(vertex.dtype) in (Kind.BOOL, Kind.INT):
        return rng.integers(0, 2, vertex.shape, vertex.dtype)
    # In float32 unless that rounds: what is drawn wider takes twice the memory.
    wide = vertex.dtype.name in ("float64", "complex128")
    drawn = rng.standard_normal(vertex.shape, np.float64 if wide else np.float32)
    return drawn.astype(vertex.dtype, copy=False)


def _errors(result: Result, wanted: Mapping[str, Array]) -> dict[str, float]:
    return {name: largest_error(result[name], right) for name, right in wanted.items()}


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


def write_npz(opened: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """Write arrays by name as NumPy's .npz does, one after another."""
    with zipfile.ZipFile(opened, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


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
            | ({"error": worst[name]} if name in worst else {})
            for name, array in result.items()
        },
    }


def _show(result: Result, worst: Mapping[str, float], graph: Graph) -> None:
    stats = result.stats
    speed = stats.flops / stats.seconds / 1e9 if stats.seconds else 0.0
    typer.echo(
        f"{stats.tasks} tasks on {stats.workers} workers in {stats.seconds:.3g} s: "
        f"{speed:.3g} GFLOP/s, {show_bytes(stats.bytes_moved)} moved between devices, "
        f"peak memory {show_bytes(stats.peak_memory)} on the fullest device"
    )
    if stats.cut_into is not None:
        typer.echo(f"cut into {stats.cut_into} pieces, as larger tiles did not fit in memory")
    for line in stats.recovered:
        typer.echo(f"computed again: {line}")
    table = Table("output", "shape", "dtype", *(["error"] if worst else []), box=None)
    for name, array in result.items():
        error = [f"{worst[name]:.1e}"] if worst else []
        table.add_row(escape(str(graph[name])), str(array.shape), array.dtype.name, *error)
    Console(width=100).print(table)

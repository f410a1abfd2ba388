"""`eindecomp run`: compute a graph's outputs as planned, from arrays in files or random numbers."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
import orjson
import typer
from numpy.lib.format import MAGIC_PREFIX
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from eindecomp.api.compile import plan_together
from eindecomp.api.compile import run as run_plan
from eindecomp.cli.options import (
    AnyFile,
    EngineName,
    EngineOptions,
    Json,
    Output,
    Trace,
    engine_from,
    flag,
    is_first,
    option,
    read,
)
from eindecomp.cli.request import Request, options_from_fields
from eindecomp.cli.terminal import columns, status_line
from eindecomp.engines.array_files import (
    INPUT_KINDS,
    check_regular,
    check_start,
    npy_array,
    open_stored,
    reading,
)
from eindecomp.engines.engine import Engine
from eindecomp.engines.result import Result
from eindecomp.engines.whole_files import write_whole
from eindecomp.errors import InputError, suggest
from eindecomp.graph.evaluate import evaluate
from eindecomp.graph.graph import Graph
from eindecomp.graph.vertex import Vertex
from eindecomp.kernels.cache import limit
from eindecomp.lang.dtypes import Array, Kind, kind
from eindecomp.planner.costs.byte_sizes import show_bytes
from eindecomp.planner.plan import Plan
from eindecomp.show.trace import tracing


@dataclass(frozen=True, slots=True)
class InputOptions:
    """Where the inputs of a run come from."""

    data: Annotated[
        list[str] | None,
        option(
            "data.npz|X=x.npy",
            "arrays by name, in one file or one file each (.npy, .zarr, w.safetensors#name); "
            "s=0.5 for run-time scalars; repeat it for several",
        ),
    ] = None
    random: Annotated[bool, flag("--random", "draw random inputs, the same for a seed")] = False
    seed: Annotated[int | None, option("N", "seed of random inputs; 0 by default", min=0)] = None

    def __post_init__(self) -> None:
        if self.random and self.data:
            raise typer.BadParameter("inputs come from --random or from --data, not from both")
        if not self.random and not self.data:
            raise typer.BadParameter("say where inputs come from: --random, or --data data.npz")
        if self.seed is not None and not self.random:
            raise typer.BadParameter("--seed is for --random")

    def arrays(self, graph: Graph) -> dict[str, Any]:
        """The inputs of a graph."""
        if self.random:
            return random_inputs(graph, self.seed or 0)
        return given_arrays(graph, self.data or ())


@options_from_fields
def run(
    file: AnyFile,
    inputs: InputOptions,
    asked: Request,
    output: Output = None,
    check: Annotated[
        bool, flag("--check", "compare with the reference; slow for large inputs")
    ] = False,
    trace: Trace = None,
    engine: EngineName = "threads",
    option: EngineOptions = None,
    json: Json = False,
) -> None:
    """Compute a graph's outputs as planned, on this machine or many.

    Takes a saved plan, or plans a graph first; by default it runs on the cores of this machine, on
    others by --engine. Prints time, bytes moved and peak memory, and a line for each output; -o
    writes the outputs to an .npz file.

    Examples:
        eindecomp run model.ein -p 2 --random --check
        eindecomp run plan.json --data data.npz -o out.npz --trace run.json
        eindecomp run model.ein -p 8 --data X=x.npy --data W=weights.safetensors#w
        mpirun -n 4 eindecomp run model.ein --data data.npz --engine spmd
    """
    if output is not None and output.suffix == ".npy":
        raise typer.BadParameter(f"outputs go by name into one .npz file, not {output}")
    if output is not None and trace is not None and output.resolve() == trace.resolve():
        raise typer.BadParameter(f"two things cannot both be written to {output}")
    limit()  # of the compiled code that is kept: refused before a plan is made
    runner = engine_from(engine, option)  # so is an engine that does not exist
    first = is_first(runner)
    # A trace that cannot be written must not cost the outputs: it comes last.
    with nullcontext() if trace is None or not first else tracing(trace) as on_event:
        plan, graph = _planned(file, asked, runner)
        arrays = inputs.arrays(plan.graph)
        result = run_plan(plan, arrays, runner, on_event=on_event)
        for name in result:  # which all ranks of a job gather together
            result[name]
        worst = _errors(result, graph, arrays) if check and first else {}
        if output is not None and first:
            write_whole(output, lambda opened: write_npz(opened, result))
        if json:
            typer.echo(orjson.dumps(_record(result, worst)))
        else:
            _show(result, worst, plan.graph)
    count = len(plan.graph.vertices)
    if any(error > _tolerance(plan.graph[name], count) for name, error in worst.items()):
        raise InputError("the outputs differ from the reference by more than rounding")


def _planned(file: str, asked: Request, runner: Engine) -> tuple[Plan, Graph]:
    """The plan for an engine, and the graph to check it against.

    That is the graph as it was written where a graph is given, so that rewriting it is checked too.
    """
    written: list[Graph] = []

    def make_plan() -> Plan:
        content = read(file)
        if isinstance(content, bytes):
            return asked.plan_from(content, file)
        written.append(content)
        return asked.for_engine(runner).plan(content, keep_on_interrupt=False)

    plan = plan_together(make_plan, runner)
    return plan, written[0] if written else plan.graph


def _record(result: Result, worst: Mapping[str, float]) -> dict[str, Any]:
    outputs: dict[str, dict[str, Any]] = {}
    for name, array in result.items():
        outputs[name] = {"shape": array.shape, "dtype": array.dtype.name}
        if nan := count_nan(array):
            outputs[name]["nan"] = nan
        if name in worst:  # JSON has no number for infinity
            outputs[name]["error"] = "inf" if math.isinf(worst[name]) else worst[name]
    stats = {field.name: getattr(result.stats, field.name) for field in fields(result.stats)}
    return stats | {"bytes_by_vertex": dict(result.stats.bytes_by_vertex), "outputs": outputs}


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


def _errors(result: Result, graph: Graph, arrays: Mapping[str, Any]) -> dict[str, float]:
    """The largest error of each output, against what the graph means."""
    with status_line("computing the reference"):
        wanted = evaluate(graph, arrays)
    return {name: largest_error(result[name], right) for name, right in wanted.items()}


def count_nan(array: Array) -> int:
    """How many values are not numbers."""
    return int(np.count_nonzero(array != array))


def largest_error(result: Array, wanted: Array) -> float:
    """The largest difference; for numbers that are rounded, relative to the largest wanted one."""
    if kind(wanted.dtype) in (Kind.BOOL, Kind.INT):
        differ = result != wanted
        # As Python's integers, which are exact at any size.
        apart = np.abs(result[differ].astype(object) - wanted[differ].astype(object))
        return float(apart.max(initial=0))
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    left, right = result.astype(wide), wanted.astype(wide)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(same, 0, np.abs(left - right))
    scale = np.abs(right[np.isfinite(right)]).max(initial=0)
    worst = float(apart.max(initial=0) / (scale or 1))
    return math.inf if math.isnan(worst) else worst


def _tolerance(vertex: Vertex, vertices: int) -> float:
    """How far apart results may be: further, the more vertices round on the way."""
    if kind(vertex.dtype) in (Kind.BOOL, Kind.INT):
        return 0.0
    bits = {2: 2e-2, 4: 1e-4}
    real = vertex.dtype.itemsize // (2 if kind(vertex.dtype) is Kind.COMPLEX else 1)
    return bits.get(real, 1e-10) * max(1.0, math.sqrt(vertices / 10))


# Inputs and outputs as arrays


def given_arrays(graph: Graph, texts: Sequence[str]) -> dict[str, Any]:
    """Arrays and scalars from files; but for .npz they stay on disk and are read tile by tile."""
    arrays: dict[str, Any] = {}
    known = [*(vertex.name for vertex in graph.inputs), *graph.scalars]
    for text in texts:
        if text == "-":
            raise InputError("arrays are read from files: --data takes no standard input")
        name, equals, value = text.partition("=")
        if not equals:
            arrays |= _npz_arrays(Path(text))
        elif name in graph.scalars:
            arrays[name] = _number(name, value)
        elif name in known:
            # A name without a known ending is that of a .npy file.
            known_kind = Path(value.partition("#")[0]).suffix.lower() in INPUT_KINDS
            arrays[name] = open_stored(value, name) if known_kind else npy_array(Path(value))
        else:
            raise InputError(f"{name!r} is not an input of the graph{suggest(name, known)}")
    return arrays


def _npz_arrays(path: Path) -> dict[str, Array]:
    check_regular(path)
    with reading(path, ".npz"), path.open("rb") as opened:
        if opened.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX:
            raise InputError(f"{path} holds one array: say which input it is, as X={path}")
        opened.seek(0)
        check_start(path, opened, b"PK", ".npz")
        with np.load(opened, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}


def _number(name: str, text: str) -> complex | float | int:
    for number in (int, float, complex):
        try:
            return number(text)
        except ValueError:
            continue
    raise InputError(f"scalar {name!r} is a number, not {text!r}")


def random_inputs(graph: Graph, seed: int) -> dict[str, Any]:
    """Numbers for all inputs and scalars of a graph, the same for a seed."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    for vertex in graph.inputs:
        try:
            arrays[vertex.name] = _random_array(vertex, rng)
        except MemoryError as error:
            raise InputError(f"no memory for random numbers as {vertex}: {error}") from None
    return arrays | {name: dtype.type(1).item() for name, dtype in graph.scalars.items()}


def _random_array(vertex: Vertex, rng: np.random.Generator) -> Array:
    if kind(vertex.dtype) in (Kind.BOOL, Kind.INT):
        return rng.integers(0, 2, vertex.shape, vertex.dtype)
    # In float32 unless that rounds: what is drawn wider takes twice the memory.
    wide = vertex.dtype.name in ("float64", "complex128")
    drawn = rng.standard_normal(vertex.shape, np.float64 if wide else np.float32)
    return drawn.astype(vertex.dtype, copy=False)


def write_npz(opened: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """Write arrays by name as NumPy's .npz does, one after another."""
    with zipfile.ZipFile(opened, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)

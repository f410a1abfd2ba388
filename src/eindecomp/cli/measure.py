"""`eindecomp solve | bench | calibrate`: problems, experiments, machines.

Experiments are imported where they are needed: that takes as long as all other commands together.
"""

from __future__ import annotations

import sys
from math import isinf
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from eindecomp.cli.options import (
    EngineName,
    EngineOptions,
    Json,
    Output,
    argument,
    engine_from,
    flag,
    is_first,
    numbers_from,
    option,
    to_write,
)
from eindecomp.cli.terminal import columns, status_line
from eindecomp.engines.whole_files import check_writable, write_whole
from eindecomp.errors import RunError
from eindecomp.show.progress import show_number, solving
from eindecomp.show.words import percent, render, short, table
from eindecomp.solve import minimize, read_contest, solution_json
from eindecomp.store.machine_file import to_json

if TYPE_CHECKING:
    from eindecomp.experiments.calibrate import Profile

_SIZES = (1 << 10, 1 << 20, 64 << 20)


def solve(
    file: Annotated[
        str, argument("FILE", "a contest file, JSON or gzipped; - reads it from standard input")
    ],
    time: Annotated[float, option("SECONDS", "how long to search, reading included", min=0)] = 60,
    seed: Annotated[int, option("N", "seed of the random search", min=0)] = 0,
    output: Output = None,
    json: Json = False,
) -> None:
    """Find the cheapest choices of a sharding problem, with a bound.

    The bound is on what any choices cost.

    Examples:
        eindecomp solve problem.json.gz --time 60 -o solution.json
        eindecomp solve - --json < problem.json
    """
    start = monotonic()
    problem = read_contest(sys.stdin.buffer if file == "-" else file)
    left = max(0.0, time - (monotonic() - start))
    with solving(None) as on_event:
        solution = minimize(problem, time_limit=left, seed=seed, on_event=on_event)
    is_feasible = problem.feasible(solution.choice)
    written = solution_json(solution, is_feasible)
    if output is not None:
        write_whole(output, written)
    if json:
        typer.echo(written.decode())
        return
    gap = "unknown" if isinf(solution.bound) else f"{100 * solution.gap:.3f} %"
    rows = {
        "cost": show_number(solution.cost),
        "bound": show_number(solution.bound),
        "gap": "0 (proved optimal)" if solution.optimal else gap,
        "feasible": "yes" if is_feasible else "no",
        "method": solution.method,
        "seconds": f"{solution.seconds:.1f}",
    }
    for name, value in rows.items():
        typer.echo(f"{name:<8}  {value}")


def bench(
    experiment: Annotated[
        Literal["chain", "ffnn", "llama"],
        typer.Argument(help="a matrix chain, a classifier's training, or LLaMA"),
    ],
    quick: Annotated[bool, flag("--quick", "small sizes, which take seconds")] = False,
    output: Annotated[
        Path, option("DIR", "write the JSON to this folder", "-o", "--output")
    ] = Path("bench-results"),
    engine: EngineName = "threads",
    option: EngineOptions = None,
    json: Json = False,
) -> None:
    """Measure an experiment of the paper: time, bytes counted and plan cost.

    Prints tables and writes EXPERIMENT.json. Sets our plans beside the usual strategies, and the
    chain beside NumPy.

    Examples:
        eindecomp bench chain --quick
        eindecomp bench llama -o results
        mpirun -n 2 eindecomp bench ffnn --engine spmd
    """
    from eindecomp.experiments import EXPERIMENTS, Record
    from eindecomp.experiments.record import WIDTH, show

    runner = engine_from(engine, option)
    output.mkdir(parents=True, exist_ok=True)
    path = output / f"{experiment}.json"
    check_writable(path)
    start = perf_counter()
    with status_line() as say:
        findings = EXPERIMENTS[experiment](quick, say, engine=runner)
    if not is_first(runner):
        return
    record = Record.of(experiment, quick, perf_counter() - start, findings, runner.name)
    write_whole(path, record.json())
    if json:
        typer.echo(record.json())
    else:
        typer.echo(show(record, columns(WIDTH)))
        typer.echo(f"written: {path}")


def calibrate(
    engine: Annotated[
        Literal["threads", "spmd"],
        typer.Option(help="the engine that plans are to run on; spmd under mpirun or torchrun"),
    ] = "threads",
    output: Annotated[
        Path, to_write("-o", "--output", help="write the JSON file that --machine takes")
    ] = Path("machine.json"),
    quick: Annotated[
        bool, flag("--quick", "few sizes and repeats: rough, but done in seconds")
    ] = False,
    mesh: Annotated[
        str | None, option("node=4,gpu=8", "axes of the ranks, outermost first")
    ] = None,
    noisy: Annotated[
        bool, flag("--noisy", "write the file even if the machine was not quiet")
    ] = False,
    json: Json = False,
) -> None:
    """Measure this machine once, for plans that minimize time.

    Measures kernels, tasks, and every collective by the size of messages. Writes a file for
    `--objective time --machine machine.json`. Let nothing else run meanwhile: if repeated
    measurements are too far apart, nothing is written without --noisy. Collectives are measured
    between the ranks of a job: mpirun -n 2 eindecomp calibrate --engine spmd.

    Examples:
        eindecomp calibrate -o machine.json
        mpirun -n 8 eindecomp calibrate --engine spmd --mesh node=2,core=4
    """
    # Here, as experiments take long to import.
    from eindecomp.experiments.calibrate import QUIET
    from eindecomp.experiments.calibrate import calibrate as measure

    axes = numbers_from("--mesh", "node=4,gpu=8", mesh)
    with status_line() as say:
        profile = measure(engine, quick=quick, mesh=axes, say=say)
    if not profile.is_first:
        return
    if not (profile.is_quiet or noisy):
        raise RunError(
            f"the machine was not quiet: {_spread_words(profile)}, more than {QUIET:g} times; let "
            "nothing else run, or write the file all the same with --noisy"
        )
    content = to_json(profile.machine, profile.about)
    write_whole(output, content)
    if json:
        typer.echo(content)
    else:
        typer.echo(_measured(profile))
        typer.echo(f"written: {output}")


def _measured(profile: Profile) -> str:
    """What was measured, as text."""
    machine = profile.machine
    known = ((name, words) for name, words in profile.about.items() if words and name != "spread")
    flops = machine.flops
    shapes = {"all shapes": flops} if isinstance(flops, float | int) else flops
    rates = ", ".join(f"{name} {rate / 1e9:.3g}" for name, rate in shapes.items())
    lines = [
        ", ".join(f"{name} {words}" for name, words in known),
        f"Gflop/s of a device: {rates}",
        f"memory: {machine.memory_bandwidth / 1e9:.3g} GB/s",
        f"task: {short(machine.task_overhead, 'time')} of overhead",
        f"overlap: communication runs beside {percent(machine.overlap)} of computing",
        f"spread: {_spread_words(profile)}, and all else less",
    ]
    seconds = table("collective", "axis", *(short(size, "bytes") for size in _SIZES), left=2)
    for collective, curves in machine.transfers.items():
        for axis, curve in curves.items():
            cells = [short(float(curve.seconds(size)), "time") for size in _SIZES]
            seconds.add_row(collective.replace("_", " "), axis, *cells)
    return render(columns(), *lines, *([seconds] if seconds.rows else []))


def _spread_words(profile: Profile) -> str:
    """How far apart the turns of the noisiest measurement were."""
    return (
        f"{profile.noisiest} took at least {profile.spread:.2f} times its best in half of its turns"
    )

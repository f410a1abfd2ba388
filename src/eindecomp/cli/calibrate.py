"""`eindecomp calibrate`: measure this machine, for plans that minimize time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from eindecomp.cli.files import to_write
from eindecomp.cli.request import Json
from eindecomp.cli.terminal import columns, interruptible, status_line
from eindecomp.cli.texts import axes_from
from eindecomp.engines.whole_files import write_whole
from eindecomp.errors import RunError
from eindecomp.show.words import percent, render, short
from eindecomp.store.machine_file import to_json

if TYPE_CHECKING:
    from eindecomp.experiments.calibrate import Profile
    from eindecomp.planner.costs.machine import Machine

EngineName = Literal["threads", "spmd", "ray"]
_SIZES = (1 << 10, 1 << 20, 64 << 20)


def calibrate(
    engine: Annotated[
        EngineName,
        typer.Option(help="the engine that plans are to run on; spmd under mpirun or torchrun"),
    ] = "threads",
    output: Annotated[
        Path, to_write("-o", "--output", help="write the JSON file that --machine takes")
    ] = Path("machine.json"),
    quick: Annotated[
        bool, typer.Option("--quick", help="few sizes and repeats: rough, but done in seconds")
    ] = False,
    mesh: Annotated[
        str | None,
        typer.Option(metavar="node=4,gpu=8", help="axes of the ranks, outermost first"),
    ] = None,
    noisy: Annotated[
        bool, typer.Option("--noisy", help="write the file even if the machine was not quiet")
    ] = False,
    json: Json = False,
) -> None:
    """Measure this machine once, for plans that minimize time.

    Measures kernels, tasks, and every collective by the size of messages. Writes a file for
    `--objective time --machine machine.json`. Let nothing else run meanwhile: if repeated
    measurements are too far apart, nothing is written without --noisy. Collectives are measured
    between the ranks of a job: mpirun -n 2 eindecomp calibrate --engine spmd.
    """
    # Here, as experiments take long to import.
    from eindecomp.experiments.calibrate import QUIET
    from eindecomp.experiments.calibrate import calibrate as measure

    axes = None if mesh is None else axes_from(mesh)
    with interruptible("nothing is written"), status_line() as say:
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
        typer.echo(show(profile))
        typer.echo(f"written: {output}")


def show(profile: Profile) -> str:
    """What was measured, as text."""
    machine = profile.machine
    known = ((name, words) for name, words in profile.about.items() if words and name != "spread")
    about = ", ".join(f"{name} {words}" for name, words in known)
    lines = [
        about,
        *_rates(machine),
        f"task: {short(machine.task_overhead, 'time')} of overhead",
        f"overlap: communication runs beside {percent(machine.overlap)} of computing",
        f"spread: {_spread_words(profile)}, and all else less",
    ]
    text = "\n".join(lines)
    return f"{text}\n{render(columns(), _table(machine))}" if machine.transfers else text


def _spread_words(profile: Profile) -> str:
    """What was least alike from turn to turn."""
    return (
        f"{profile.noisiest} took at least {profile.spread:.2f} times its best in half of its turns"
    )


def _rates(machine: Machine) -> list[str]:
    flops = machine.flops
    shapes = {"all shapes": flops} if isinstance(flops, float | int) else flops
    rates = ", ".join(f"{name} {rate / 1e9:.3g}" for name, rate in shapes.items())
    return [
        f"Gflop/s of a device: {rates}",
        f"memory: {machine.memory_bandwidth / 1e9:.3g} GB/s",
    ]


def _table(machine: Machine) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("collective", "axis"):
        table.add_column(name)
    for size in _SIZES:
        table.add_column(short(size, "bytes"), justify="right", no_wrap=True)
    for collective, curves in machine.transfers.items():
        for axis, curve in curves.items():
            seconds = [short(float(curve.seconds(size)), "time") for size in _SIZES]
            table.add_row(collective.replace("_", " "), axis, *seconds)
    return table

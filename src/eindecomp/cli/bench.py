"""`eindecomp bench`: the paper's experiments, our plans against the usual strategies.

Experiments are imported where they are needed: that takes as long as all other commands together.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from eindecomp.cli.engine import EngineName, EngineOptions, engine_from, is_first
from eindecomp.cli.request import Json
from eindecomp.cli.terminal import columns, interruptible, status_line
from eindecomp.store.whole_file import check_writable, write_whole

if TYPE_CHECKING:
    from eindecomp.experiments import Record

Experiment = Literal["chain", "ffnn", "llama"]


def bench(
    experiment: Annotated[
        Experiment,
        typer.Argument(help="a matrix chain, a classifier's training, or LLaMA"),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="small sizes, which take seconds")] = False,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="DIR", help="write the JSON and the pictures to this folder"
        ),
    ] = Path("bench-results"),
    engine: EngineName = "threads",
    option: EngineOptions = None,
    json: Json = False,
) -> None:
    """Measure an experiment of the paper: time, bytes counted and plan cost.

    Writes EXPERIMENT.json, .png and .svg. Sets our plans beside the usual strategies, and the chain
    beside NumPy.
    """
    from eindecomp.experiments import EXPERIMENTS, Record
    from eindecomp.experiments.plot import FORMATS, check_plots

    runner = engine_from(engine, option)
    check_plots()
    output.mkdir(parents=True, exist_ok=True)
    for suffix in ("json", *FORMATS):
        check_writable(output / f"{experiment}.{suffix}")
    start = perf_counter()
    with interruptible("nothing is written"), status_line() as say:
        findings = EXPERIMENTS[experiment](quick, say, engine=runner)
    if is_first(runner):
        seconds = perf_counter() - start
        _finish(Record.of(experiment, quick, seconds, findings, runner.name), output, json)


def _finish(record: Record, output: Path, json: bool) -> None:
    """Write, draw and show a record."""
    from eindecomp.experiments.plot import plot
    from eindecomp.experiments.show import WIDTH, show

    path = output / f"{record.experiment}.json"
    write_whole(path, record.json())
    pictures = plot(record, output / record.experiment)
    if json:
        typer.echo(record.json())
    else:
        typer.echo(show(record, columns(WIDTH)))
        typer.echo(f"written: {', '.join(map(str, (path, *pictures)))}")

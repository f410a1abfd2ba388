"""`eindecomp bench`: the paper's experiments against the usual strategies and against peers."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Annotated, Literal

import typer

from eindecomp.cli.engine import EngineName, EngineOptions, engine_from, is_first
from eindecomp.cli.progress import interruptible, status_line
from eindecomp.cli.request import Json
from eindecomp.experiments import EXPERIMENTS, Record
from eindecomp.experiments.plot import FORMATS, check_plots, plot
from eindecomp.experiments.show import show
from eindecomp.store.whole_file import check_writable, write_whole

Experiment = Literal["chain", "ffnn", "llama"]


def bench(
    experiment: Annotated[
        Experiment,
        typer.Argument(help="a matrix chain, a classifier's training, or LLaMA"),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="small sizes, which take seconds")] = False,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="the folder for the JSON and the pictures")
    ] = Path("bench-results"),
    engine: EngineName = "threads",
    option: EngineOptions = None,
    json: Json = False,
) -> None:
    """Measure one of the paper's experiments: time, bytes counted, plan cost, and peers.

    Writes EXPERIMENT.json, .png and .svg. Peers that are not installed are listed as absent.
    """
    runner = engine_from(engine, option)
    output.mkdir(parents=True, exist_ok=True)
    for suffix in ("json", *FORMATS):
        check_writable(output / f"{experiment}.{suffix}")
    check_plots()
    start = perf_counter()
    with interruptible("nothing is written"), status_line() as say:
        findings = EXPERIMENTS[experiment](quick, say, engine=runner)
    record = Record.of(experiment, quick, perf_counter() - start, findings, runner.name)
    if not is_first(runner):
        return
    path = output / f"{experiment}.json"
    write_whole(path, record.json())
    pictures = plot(record, output / experiment)
    if json:
        typer.echo(record.json())
    else:
        typer.echo(show(record))
        typer.echo(f"written: {', '.join(map(str, (path, *pictures)))}")

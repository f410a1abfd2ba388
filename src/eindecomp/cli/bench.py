"""`eindecomp bench`: the paper's experiments, our plans against the usual strategies.

Experiments are imported where they are needed: that takes as long as all other commands together.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Annotated, Literal

import typer

from eindecomp.cli.engine import EngineName, EngineOptions, engine_from, is_first
from eindecomp.cli.request import Json
from eindecomp.cli.terminal import columns, interruptible, status_line
from eindecomp.engines.whole_files import check_writable, write_whole

Experiment = Literal["chain", "ffnn", "llama"]


def bench(
    experiment: Annotated[
        Experiment,
        typer.Argument(help="a matrix chain, a classifier's training, or LLaMA"),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="small sizes, which take seconds")] = False,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="write the JSON to this folder"),
    ] = Path("bench-results"),
    engine: EngineName = "threads",
    option: EngineOptions = None,
    json: Json = False,
) -> None:
    """Measure an experiment of the paper: time, bytes counted and plan cost.

    Prints tables and writes EXPERIMENT.json. Sets our plans beside the usual strategies, and the
    chain beside NumPy.
    """
    from eindecomp.experiments import EXPERIMENTS, Record
    from eindecomp.experiments.show import WIDTH, show

    runner = engine_from(engine, option)
    output.mkdir(parents=True, exist_ok=True)
    path = output / f"{experiment}.json"
    check_writable(path)
    start = perf_counter()
    with interruptible("nothing is written"), status_line() as say:
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

"""`eindecomp bench`: experiments against the usual strategies, peers, and what a card allows.

Experiments are imported where they are needed: that takes as long as all other commands together.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from eindecomp.cli.engine import EngineName, EngineOptions, engine_from, is_first, options_from
from eindecomp.cli.plain import columns
from eindecomp.cli.progress import interruptible, status_line
from eindecomp.cli.request import Json
from eindecomp.errors import InputError
from eindecomp.store.whole_file import check_writable, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.engines.engine import Engine
    from eindecomp.experiments import Findings, Record

Experiment = Literal["chain", "ffnn", "llama", "gpu"]


def bench(
    experiment: Annotated[
        Experiment,
        typer.Argument(help="a matrix chain, a classifier's training, LLaMA, or all on one GPU"),
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
    only: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="gpu: some tables or cases of them, such as decode,host/16x1024"
        ),
    ] = None,
    ceiling: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="gpu: a program that prints what it reaches, to be run beforehand"
        ),
    ] = None,
    given: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="show and draw the JSON of former runs; repeat it for several",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Measure an experiment: time, bytes counted, plan cost, and peers.

    Writes EXPERIMENT.json, .png and .svg. Peers that are not installed are listed as absent. `gpu`
    runs the engine torch; its JSON is written after every case, and its trace is for Perfetto.
    """
    from eindecomp.experiments import EXPERIMENTS, Record
    from eindecomp.experiments.gpu import describe_device
    from eindecomp.experiments.show import brief

    if given:
        record = _joined(experiment, given)
        _check_writable(output, experiment)
        _finish(record, output, json, drawn=True)
        return
    if experiment != "gpu" and (only or ceiling):
        raise InputError(f"--only and --ceiling are for gpu, not for {experiment}")
    if experiment == "gpu":
        _check_options(option or ())
    runner = engine_from("torch" if (experiment, engine) == ("gpu", "threads") else engine, option)
    _check_writable(output, experiment)
    drawn = _can_draw(required=experiment != "gpu")
    start = perf_counter()

    def recorded(findings: Findings) -> Record:
        seconds, device = perf_counter() - start, describe_device(runner)
        return Record.of(experiment, quick, seconds, findings, runner.name, device)

    def keep(more: Findings, findings: Findings) -> None:
        write_whole(output / f"{experiment}.json", recorded(findings).json())
        for line in brief(more):
            typer.echo(f"{perf_counter() - start:6.1f} s  {line}", err=True)

    run: Callable[..., Findings] = EXPERIMENTS[experiment]
    if experiment == "gpu":
        chosen = [name.strip() for name in only.split(",")] if only else []
        run = partial(run, only=chosen, ceiling=ceiling, folder=output, keep=keep)
    findings = _measured(run, quick, runner)
    if is_first(runner):
        _finish(recorded(findings), output, json, drawn=drawn)


def _check_options(texts: Sequence[str]) -> None:
    """Refuse options of the engine that the tables of `gpu` set themselves."""
    given = options_from(texts)
    if others := [name for name in given if name != "device"]:
        raise InputError(
            f"bench gpu has no use for --option {others[0]}: it takes device, and each table says "
            "what else the engine is given"
        )
    if "," in str(given.get("device", "")):
        raise InputError(f"bench gpu measures one device, not {given['device']}")


def _check_writable(output: Path, experiment: str) -> None:
    """Make the folder, and refuse now what could not be written after the measuring."""
    from eindecomp.experiments.plot import FORMATS

    output.mkdir(parents=True, exist_ok=True)
    for suffix in ("json", *FORMATS):
        check_writable(output / f"{experiment}.{suffix}")


def _measured(run: Callable[..., Any], quick: bool, runner: Engine) -> Findings:
    with interruptible("only what is written already is kept"), status_line() as say:
        return run(quick, say, engine=runner)


def _can_draw(*, required: bool) -> bool:
    """Whether pictures can be drawn; where they are required, an error if not."""
    from eindecomp.experiments.plot import check_plots

    try:
        check_plots()
    except InputError as error:
        if required:
            raise
        typer.echo(f"eindecomp: no pictures, as {error}; draw them later by --from", err=True)
        return False
    return True


def _joined(experiment: str, paths: list[Path]) -> Record:
    """Former runs as one: the machine and the date are those of the first."""
    from eindecomp.experiments.read_record import read_record

    records = [read_record(path) for path in paths]
    for path, record in zip(paths, records, strict=True):
        if record.experiment != experiment:
            raise InputError(f"{path} is of the experiment {record.experiment}, not {experiment}")
    first, *others = records
    for other in others:
        seconds, findings = first.seconds + other.seconds, first.findings + other.findings
        first = replace(first, seconds=seconds, findings=findings)
    return first


def _finish(record: Record, output: Path, json: bool, *, drawn: bool) -> None:
    """Write and show a record; what of ours was not measured is an error."""
    from eindecomp.experiments.plot import plot
    from eindecomp.experiments.show import WIDTH, show

    path = output / f"{record.experiment}.json"
    write_whole(path, record.json())
    pictures = plot(record, output / record.experiment) if drawn else []
    if json:
        typer.echo(record.json())
    else:
        typer.echo(show(record, columns(WIDTH)))
        typer.echo(f"written: {', '.join(map(str, (path, *pictures)))}")
    if failed := [row for row in record.findings.timed if row.kind == "ours" and row.absent]:
        cases = ", ".join(dict.fromkeys(row.case for row in failed))
        raise InputError(f"of ours, some could not be measured: {cases}")

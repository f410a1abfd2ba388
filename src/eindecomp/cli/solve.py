"""`eindecomp solve`: the cheapest choices of a sharding problem."""

from __future__ import annotations

import sys
from math import isinf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from eindecomp.cli.files import to_write
from eindecomp.cli.request import Json
from eindecomp.cli.terminal import columns, interruptible
from eindecomp.engines.whole_files import write_whole
from eindecomp.show.progress import show_number, solving
from eindecomp.solve import Solution, minimize, read_contest, solution_json

if TYPE_CHECKING:
    from eindecomp.solve import Problem


def solve(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="a contest file, JSON or gzipped; - reads it from standard input"
        ),
    ],
    time: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="how long to search, reading included"),
    ] = 60,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="seed of the random search")] = 0,
    output: Annotated[
        Path | None, to_write("-o", "--output", help="write the solution to this JSON file")
    ] = None,
    json: Json = False,
) -> None:
    """Find the cheapest choices of a sharding problem, with a bound.

    The bound is on what any choices cost.
    """
    start = monotonic()
    with interruptible("no feasible choice yet"):
        problem = read_contest(sys.stdin.buffer if file == "-" else file)
        left = max(0.0, time - (monotonic() - start))
        with solving(None) as on_event:
            solution = minimize(problem, time_limit=left, seed=seed, on_event=on_event)
    written = solution_json(solution, problem.feasible(solution.choice))
    if output is not None:
        write_whole(output, written)
    if json:
        typer.echo(written.decode())
    else:
        _show(problem, solution)


def _show(problem: Problem, solution: Solution) -> None:
    table = Table(show_header=False, box=None)
    rows = {
        "cost": show_number(solution.cost),
        "bound": show_number(solution.bound),
        "gap": _gap(solution),
        "feasible": "yes" if problem.feasible(solution.choice) else "no",
        "method": solution.method,
        "seconds": f"{solution.seconds:.1f}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    Console(width=columns()).print(table)


def _gap(solution: Solution) -> str:
    if solution.optimal:
        return "0 (proved optimal)"
    return "unknown" if isinf(solution.bound) else f"{100 * solution.gap:.3f} %"

"""`eindecomp solve`: the cheapest choices of a sharding problem."""

from __future__ import annotations

import sys
from math import isinf
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from eindecomp.cli.options import Json, Output
from eindecomp.cli.terminal import columns
from eindecomp.engines.whole_files import write_whole
from eindecomp.show.progress import show_number, solving
from eindecomp.solve import minimize, read_contest, solution_json


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
    table = Table(show_header=False, box=None)
    for name, value in rows.items():
        table.add_row(name, value)
    Console(width=columns()).print(table)

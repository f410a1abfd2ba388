"""The command line: `eindecomp solve FILE`.

Exit status 0 is fine, 1 means that what was given is wrong (a message on standard error, no
traceback), 2 that the command was used wrongly.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from eindecomp.errors import EinDecompError
from eindecomp.solve import Solution, minimize, read_contest, solution_json

if TYPE_CHECKING:
    from eindecomp.solve import Problem, Progress

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
progress_console = Console(stderr=True)


@app.callback()
def root() -> None:
    """Split tensor computations over devices, and solve the choice problems behind that."""


@app.command()
def solve(
    file: Annotated[
        str, typer.Argument(help="a contest file, JSON or gzipped; - reads it from standard input")
    ],
    time: Annotated[float, typer.Option(min=0, help="seconds to work for, reading included")] = 60,
    seed: Annotated[
        int, typer.Option(min=0, help="of the random choices that the search makes")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="print the solution as JSON")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="write the solution there")
    ] = None,
) -> None:
    """Find the cheapest choices of a sharding problem, with a bound on what any choices cost."""
    if output is not None:
        output.open("ab").close()  # a place that cannot be written to is better known before
    start = monotonic()
    problem = read_contest(sys.stdin.buffer if file == "-" else file)
    solution = _minimize(problem, max(0.0, time - (monotonic() - start)), seed)
    written = solution_json(solution, problem.feasible(solution.choice))
    if output is not None:
        output.write_bytes(written)
    if json:
        typer.echo(written.decode())
    else:
        _show(problem, solution)


def _minimize(problem: Problem, time_limit: float, seed: int) -> Solution:
    """Solve with a live line on a terminal; elsewhere nothing is drawn."""
    if not progress_console.is_terminal:
        return minimize(problem, time_limit=time_limit, seed=seed)
    with Live(console=progress_console, transient=True, refresh_per_second=4) as live:
        return minimize(
            problem,
            time_limit=time_limit,
            seed=seed,
            on_event=lambda event: live.update(_line(event)),
        )


def _line(event: Progress) -> Text:
    return Text(
        f"{event.seconds:7.1f} s  {event.stage:<10} cost {event.cost:,}  bound {event.bound:,}"
    )


def _show(problem: Problem, solution: Solution) -> None:
    table = Table(show_header=False, box=None)
    rows = {
        "cost": f"{solution.cost:,}",
        "bound": f"{solution.bound:,}",
        "gap": "0 (proved optimal)" if solution.optimal else f"{100 * solution.gap:.3f} %",
        "feasible": "yes" if problem.feasible(solution.choice) else "no",
        "method": solution.method,
        "seconds": f"{solution.seconds:.1f}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)


def main() -> None:
    """Run the command line, turning the user's mistakes into messages."""
    try:
        app()
    except EinDecompError as error:
        typer.echo(f"eindecomp: {error}", err=True)
        raise SystemExit(1) from None
    except OSError as error:
        typer.echo(f"eindecomp: {error}", err=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()

"""The command line: `eindecomp solve FILE`.

Exit status 0 is fine, 1 means that what was given is wrong (a message on standard error, no
traceback), 2 that the command was used wrongly, 130 that it was interrupted before it had a result.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from math import isinf
from pathlib import Path
from secrets import token_hex
from shutil import copymode
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
        _check_writable(output)
    start = monotonic()
    try:
        problem = read_contest(sys.stdin.buffer if file == "-" else file)
        solution = _minimize(problem, max(0.0, time - (monotonic() - start)), seed)
    except KeyboardInterrupt:
        typer.echo("eindecomp: interrupted, no feasible choice yet", err=True)
        raise typer.Exit(130) from None
    written = solution_json(solution, problem.feasible(solution.choice))
    if output is not None:
        _write(output, written)
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
            on_event=lambda event: live.update(progress_line(event)),
        )


def progress_line(event: Progress) -> Text:
    """Where the solver stands, in one line."""
    return Text(
        f"{event.seconds:7,.1f} s  {event.stage:<10} "
        f"cost {_number(event.cost)}  bound {_number(event.bound)}"
    )


def _number(number: float) -> str:
    if isinf(number):
        return "none yet"
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:,.10g}" if abs(number) < 1e10 else f"{number:,.0f}"


def _show(problem: Problem, solution: Solution) -> None:
    table = Table(show_header=False, box=None)
    rows = {
        "cost": _number(solution.cost),
        "bound": _number(solution.bound),
        "gap": _gap(solution),
        "feasible": "yes" if problem.feasible(solution.choice) else "no",
        "method": solution.method,
        "seconds": f"{solution.seconds:.1f}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)


def _gap(solution: Solution) -> str:
    if solution.optimal:
        return "0 (proved optimal)"
    return "unknown" if isinf(solution.bound) else f"{100 * solution.gap:.3f} %"


def _check_writable(output: Path) -> None:
    """Raise now what would keep the solution from being written later."""
    if output.exists():
        output.open("ab").close()
    if output.is_file() or not output.exists():
        try:
            with _beside(output):
                pass
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(output)) from None


def _write(output: Path, content: bytes) -> None:
    """Write a file as a whole or not at all; a pipe or a device is just written to."""
    if output.exists() and not output.is_file():
        output.write_bytes(content)
        return
    with _beside(output) as fresh:
        fresh.write_bytes(content)
        if output.exists():
            copymode(output, fresh)
        fresh.replace(output.resolve())


@contextmanager
def _beside(output: Path) -> Generator[Path, None, None]:
    """A new file in the output's folder, removed in the end if it is still there."""
    fresh = output.resolve().with_name(f".eindecomp-{token_hex(8)}")
    fresh.touch(exist_ok=False)
    try:
        yield fresh
    finally:
        fresh.unlink(missing_ok=True)


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

"""The command line: `eindecomp plan | run | explain | compare | simulate | solve | calibrate | …`.

Exit status 0 means success, 1 that the input was wrong (a message on standard error, no traceback),
2 that the command was used wrongly, 130 that it was interrupted before it had a result.
"""

from __future__ import annotations

from typing import Annotated

import typer

from eindecomp import __version__
from eindecomp.cli import (
    bench,
    cache,
    calibrate,
    compare,
    explain,
    llama,
    plan,
    run,
    simulate,
    solve,
)
from eindecomp.errors import EinDecompError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
for command in (
    plan.plan,
    run.run,
    explain.explain,
    compare.compare,
    simulate.simulate,
    solve.solve,
    llama.llama,
    bench.bench,
    calibrate.calibrate,
    cache.cache,
):
    app.command()(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eindecomp {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="print the version and exit"
        ),
    ] = False,
) -> None:
    """Split tensor computations over devices, run them, and solve cost networks."""


def main() -> None:
    """Run the command line, turning the user's mistakes into messages."""
    try:
        app()
    except (EinDecompError, OSError) as error:
        typer.echo(f"eindecomp: {error}", err=True)
        raise SystemExit(1) from None
    except MemoryError as error:
        what = f": {error}" if str(error) else ""  # NumPy says how much, and of which shape
        typer.echo(f"eindecomp: out of memory{what}", err=True)
        raise SystemExit(1) from None

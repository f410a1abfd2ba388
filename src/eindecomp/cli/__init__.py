"""The command line: `eindecomp plan | run | explain | compare | export | simulate | solve | …`.

Exit status 0 means success, 1 that the input was wrong (a message on standard error, no traceback),
2 that the command was used wrongly, 130 that it was interrupted before it had a result.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from eindecomp import __version__
from eindecomp.cli import (
    bench,
    cache,
    calibrate,
    compare,
    explain,
    export,
    llama,
    plan,
    run,
    simulate,
    solve,
)
from eindecomp.cli.engine import leave_job, let_first_speak
from eindecomp.errors import EinDecompError

if TYPE_CHECKING:
    from collections.abc import Generator


class Commands(TyperGroup):
    """All commands; of the ranks of a job that fail alike, the first says why."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Read what stands before the command."""
        with _speaking_in_turn():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with _speaking_in_turn():
            return super().invoke(ctx)


@contextmanager
def _speaking_in_turn() -> Generator[None]:
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except Exception:
        let_first_speak()
        raise


app = typer.Typer(
    cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
for command in (
    plan.plan,
    run.run,
    explain.explain,
    export.export,
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
        _run()
    except SystemExit as end:
        if isinstance(end.code, int) and end.code:
            leave_job(end.code)
        raise


def _run() -> None:
    try:
        app()
    except (EinDecompError, OSError) as error:
        typer.echo(f"eindecomp: {error}", err=True)
        raise SystemExit(1) from None
    except MemoryError as error:
        what = f": {error}" if str(error) else ""  # NumPy says how much, and of which shape
        typer.echo(f"eindecomp: out of memory{what}", err=True)
        raise SystemExit(1) from None

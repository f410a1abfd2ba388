"""All commands, in the groups in which `eindecomp --help` shows them."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from eindecomp import __version__
from eindecomp.cli import (
    bench,
    cache,
    calibrate,
    compare,
    draw,
    explain,
    export,
    importing,
    llama,
    plan,
    report,
    run,
    simulate,
    solve,
)
from eindecomp.cli.examples import FIRST_STEPS, epilog, paragraphs
from eindecomp.cli.files import refuse_overwriting
from eindecomp.cli.mistakes import STATUSES, telling


class Commands(TyperGroup):
    """The commands; whatever goes wrong in them ends in a message and a status."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Read what stands before the command."""
        with telling(debug=False):
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with telling(debug=ctx.params["debug"]):
            return super().invoke(ctx)


class Command(TyperCommand):
    """A command, which writes to no file that it reads."""

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        refuse_overwriting(ctx.params)
        return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
GROUPS = {
    "Plan and look": (
        plan.plan, explain.explain, compare.compare, draw.draw, report.report
    ),
    "Run": (run.run, llama.llama),
    "Solve and measure": (
        solve.solve, simulate.simulate, bench.bench, calibrate.calibrate, cache.cache
    ),
    "Other frameworks": (export.export,),
}  # fmt: skip
for group, commands in GROUPS.items():
    for command in commands:
        name = command.__name__
        text = paragraphs(command.__doc__)
        app.command(name, cls=Command, help=text, epilog=epilog(name), rich_help_panel=group)(
            command
        )
app.add_typer(importing.commands, name="import", rich_help_panel="Other frameworks")


def _help() -> str:
    """What `eindecomp` is and how to begin; brackets are no markup, where rich would see it."""
    steps = FIRST_STEPS if app.rich_markup_mode is None else escape(FIRST_STEPS)
    return f"""\
Split a tensor computation over many devices so that the least data moves, and run it.

{steps}"""


def _statuses() -> str:
    lines = "".join(f"\n  {status:>3}  {meaning}" for status, meaning in STATUSES.items())
    return f"\b\nExit status:{lines}"


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eindecomp {__version__}")
        raise typer.Exit


@app.callback(help=_help(), epilog=_statuses())
def root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="print the version and exit"
        ),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", envvar="EINDECOMP_DEBUG", help="show the traceback of an error as well"
        ),
    ] = False,
) -> None:
    """Read what stands before a command."""
    del debug  # which `Commands` looks up

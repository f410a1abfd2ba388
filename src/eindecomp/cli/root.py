"""All commands, as `eindecomp --help` groups them; each is loaded when it is called."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from eindecomp import __version__
from eindecomp.cli.examples import FIRST_STEPS, epilog, paragraphs
from eindecomp.cli.mistakes import STATUSES, telling

if TYPE_CHECKING:
    from collections.abc import Generator


class Command(TyperCommand):
    """A command, which writes to no file that it reads."""

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        from eindecomp.cli.files import refuse_overwriting

        refuse_overwriting(ctx.params)
        return super().invoke(ctx)


@cache
def load_command(name: str) -> Any:
    """The command of a name, with all its options."""
    with _ending_at_interrupts():
        if name == "import":
            from eindecomp.cli.importing import commands

            return typer.main.get_command(commands)
        module = "look" if name in LOOKING else name
        function = getattr(import_module(f"eindecomp.cli.{module}"), name)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    text = paragraphs(function.__doc__)
    alone.command(name, cls=Command, help=text, epilog=epilog(name))(function)
    return typer.main.get_command(alone)


@contextmanager
def _ending_at_interrupts() -> Generator[None]:
    """Let Ctrl-C end the program: as an exception it might be lost in a module that is loaded."""
    if current_thread() is not main_thread():
        yield
        return
    usual = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


GROUPS = {
    "Plan and look": {
        "plan": "Split a graph over devices so that the least data moves.",
        "explain": "Explain a plan: its cuts, what moves where, costs, alternatives.",
        "compare": "Compare a plan with the usual strategies.",
        "draw": "Draw a plan, or the tiles of a tensor.",
        "report": "Write all about a plan to one HTML file, to be opened in a browser.",
    },
    "Run": {
        "run": "Compute a graph's outputs as planned, on this machine or many.",
        "llama": "Generate text with a LLaMA, printed as it is generated.",
    },
    "Solve and measure": {
        "solve": "Find the cheapest choices of a sharding problem, with a bound.",
        "simulate": "Simulate how long a plan takes on a machine, and why.",
        "bench": "Measure an experiment of the paper: time, bytes counted and plan cost.",
        "calibrate": "Measure this machine once, for plans that minimize time.",
        "cache": "Show or remove the compiled code that is kept on disk.",
    },
    "Other frameworks": {
        "export": "Write a plan's layouts for PyTorch, JAX or Hugging Face.",
        "import": "Turn a model of PyTorch or JAX into a graph (.ein).",
    },
}
"""The commands, each with the first line of its help: a list of them loads none."""
LOOKING = ("explain", "compare", "draw", "report")
"""The commands that show a plan, which are in one module."""


class Commands(TyperGroup):
    """The commands; whatever goes wrong in them ends in a message and a status."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the command that is called, in place of its line in the list."""
        from eindecomp.cli.root import load_command

        if args and args[0] in self.commands:
            self.commands[args[0]] = load_command(args[0])
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write what `eindecomp` is, and the list of commands."""
        self.help = _help()
        super().format_help(ctx, formatter)

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Read what stands before the command."""
        with telling(debug=False):
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with telling(debug=ctx.params["debug"]):
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _later() -> None:
    """Stand for a command that is not loaded yet."""


for _group, _commands in GROUPS.items():
    for _name, _summary in _commands.items():
        app.command(_name, help=_summary, rich_help_panel=_group)(_later)


def _help() -> str:
    """What `eindecomp` is and how to begin; brackets are no markup, where rich would see it."""
    from rich.markup import escape

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


@app.callback(epilog=_statuses())
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

"""All commands, as `eindecomp --help` groups them; each is loaded when it is called."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import cache
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from eindecomp import __version__
from eindecomp.cli.terminal import STATUSES, telling

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
    },
    "Other frameworks": {
        "export": "Write a plan's layouts for PyTorch, JAX or Hugging Face.",
        "import": "Turn a model of PyTorch or JAX into a graph (.ein).",
    },
}
"""The commands, each with the first line of its help: a list of them loads none."""
MODULES = {
    "look": ("plan", "explain", "compare", "draw", "report", "simulate"),
    "measure": ("solve", "bench", "calibrate"),
    "frameworks": ("export", "import"),
}
"""The modules of several commands; any other command is in a module of its name."""


class Command(TyperCommand):
    """A command, which writes to no file that it reads."""

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        from eindecomp.cli.options import refuse_overwriting

        if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
            # While modules were loaded, Ctrl-C ended the program: they might lose an exception.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        refuse_overwriting(ctx.params)
        return super().invoke(ctx)


@cache
def load_command(name: str) -> Any:
    """The command of a name, with all its options."""
    module = next((each for each, names in MODULES.items() if name in names), name)
    loaded = import_module(f"eindecomp.cli.{module}")
    if name != "import":
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        _add(alone, name, getattr(loaded, name))
        return typer.main.get_command(alone)
    group = typer.Typer(no_args_is_help=True, help=GROUPS["Other frameworks"]["import"])
    for framework, function in loaded.IMPORTS.items():
        _add(group, framework, function)
    return typer.main.get_command(group)


def _add(commands: typer.Typer, name: str, function: Callable[..., None]) -> None:
    """Add a command, whose docstring is its help; the examples in it come last, a line each."""
    text, _, examples = cleandoc(function.__doc__ or "").partition("\n\nExamples:\n")
    # One line for each paragraph, as typer keeps its breaks or not.
    paragraphs = [" ".join(part.split("\n")) for part in text.split("\n\n")]
    epilog = f"\b\nExamples:\n{examples}"
    commands.command(name, cls=Command, help="\n\n".join(paragraphs), epilog=epilog)(function)


class Commands(TyperGroup):
    """The commands; whatever goes wrong in them ends in a message and a status."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the command that is called, in place of its line in the list."""
        if args and args[0] in self.commands:
            self.commands[args[0]] = load_command(args[0])
        return super().resolve_command(ctx, args)

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


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eindecomp {__version__}")
        raise typer.Exit


_MEANINGS = [f"  {status:>3}  {meaning}" for status, meaning in STATUSES.items()]


@app.callback(epilog="\n".join(["\b", "Exit status:", *_MEANINGS]))
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
    """Split a tensor computation over many devices so that the least data moves, and run it.

    \b
    Write this to product.ein, a matrix product:
      input X\\[i: 256, j: 256], Y\\[j, k: 256]
      Z\\[i,k] <- sum X\\[i,j] * Y\\[j,k]
      output Z
    and try:
      eindecomp plan product.ein -p 4 --inputs sharded     # for 4 devices
      eindecomp compare product.ein -p 4 --inputs sharded  # with usual ways
      eindecomp run product.ein -p 4 --random --check      # compute it
    """
    del debug  # which `Commands` looks up

"""All commands, in the groups in which `eindecomp --help` shows them."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from eindecomp import __version__
from eindecomp.cli.examples import FIRST_STEPS
from eindecomp.cli.mistakes import STATUSES, telling

GROUPS = {
    "Plan and look": {
        "plan": "Split a graph over devices so that the least data moves.",
        "explain": "Explain a plan: its cuts, what moves where, costs, alternatives.",
        "compare": "Compare a plan with the usual strategies.",
        "draw": "Draw a plan, the tiles of a tensor, or the dataflow of a vertex.",
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


class Commands(TyperGroup):
    """The commands; whatever goes wrong in them ends in a message and a status."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the command that is called, in place of its line in the list."""
        from eindecomp.cli.load import load_command

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

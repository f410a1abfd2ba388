"""Loads a command when it is called: no other waits for the modules that it needs."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from eindecomp.cli.examples import epilog, paragraphs

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
        function = getattr(import_module(f"eindecomp.cli.{name}"), name)
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

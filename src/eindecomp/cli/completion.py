"""What a shell completes behind an option: names of strategies, engines, machines and tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from eindecomp.cli.files import read
from eindecomp.engines.engine import engine_names
from eindecomp.errors import EinDecompError
from eindecomp.planner.costs.machine import PRESETS
from eindecomp.planner.options import INPUTS
from eindecomp.planner.space.strategy import ALIASES, NAMED
from eindecomp.store.plan_file import from_json

if TYPE_CHECKING:
    from collections.abc import Iterable


def strategies(incomplete: str) -> list[str]:
    """Strategies that have a name."""
    return _starting(incomplete, ("free", "sqrt", *NAMED, *ALIASES))


def places(incomplete: str) -> list[str]:
    """Where inputs can lie."""
    return _starting(incomplete, INPUTS)


def engines(incomplete: str) -> list[str]:
    """Engines that are installed."""
    return _starting(incomplete, engine_names())


def machines(incomplete: str) -> list[str]:
    """Machines that have a name; the shell itself completes files."""
    return _starting(incomplete, PRESETS)


def tensors(ctx: typer.Context, incomplete: str) -> list[str]:
    """The tensors of the graph or plan that is given before."""
    # Words before an option whose value is still missing are not taken as arguments yet.
    file = ctx.params.get("file") or next(iter(ctx.args), None)
    if file is None or file == "-":
        return []
    try:
        found = read(file)
        graph = from_json(found, file).graph if isinstance(found, bytes) else found
    except (EinDecompError, OSError):  # which the command itself tells
        return []
    return _starting(incomplete, graph.vertices)


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]

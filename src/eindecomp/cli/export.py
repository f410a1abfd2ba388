"""`eindecomp export`: a plan as PyTorch, JAX or Hugging Face understand it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer

from eindecomp.cli import request as ask
from eindecomp.cli.progress import interruptible
from eindecomp.errors import PlanError
from eindecomp.frontends.export import Target, exported
from eindecomp.store.plan_file import from_json
from eindecomp.store.whole_file import check_writable, write_whole


def export(
    file: ask.AnyFile,
    to: Annotated[
        Target,
        typer.Option(
            help="DTensor's placements, JAX's partition specs, the placement file of AutoParallel, "
            "or the tp_plan of Hugging Face"
        ),
    ],
    fewest_dims: Annotated[
        bool,
        typer.Option(
            "--fewest-dims",
            help="for DTensor: make one mesh dimension of axes that the plan never keeps apart",
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="write the JSON to this file")
    ] = None,
    json: ask.Json = False,
) -> None:
    """Write where the tensors of a saved plan lie, in the words of another framework, as JSON.

    Needs no framework. A plan that the framework cannot express is refused with the reason.
    """
    if output is not None:
        check_writable(output)
    with interruptible():
        found = ask.read(file)
        if not isinstance(found, bytes):
            raise PlanError(f"{ask.name_of(file)} is a graph: plan it first, with -o plan.json")
        made = exported(from_json(found, ask.name_of(file)), to, fewest=fewest_dims)
        written = orjson.dumps(made, option=0 if json else orjson.OPT_INDENT_2)
    if output is not None:
        write_whole(output, written)
    else:
        typer.echo(written)

"""`eindecomp export`: a plan as PyTorch, JAX or Hugging Face understand it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer

from eindecomp.cli.files import PlanFile, name_of, read, to_write
from eindecomp.cli.request import Json
from eindecomp.cli.terminal import interruptible
from eindecomp.engines.whole_files import write_whole
from eindecomp.errors import PlanError
from eindecomp.frontends.placements import Target, exported
from eindecomp.store.plan_file import from_json


def export(
    file: PlanFile,
    to: Annotated[
        Target,
        typer.Option(
            help="DTensor's placements, JAX's partition specs, or the tp_plan of Hugging Face"
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
        Path | None, to_write("-o", "--output", help="write the JSON to this file")
    ] = None,
    json: Json = False,
) -> None:
    """Write a plan's layouts for PyTorch, JAX or Hugging Face.

    Prints JSON, or writes it to a file. Needs no framework. A plan that the framework cannot
    express is refused with the reason.
    """
    with interruptible():
        found = read(file)
        if not isinstance(found, bytes):
            raise PlanError(f"{name_of(file)} is a graph: plan it first, with -o plan.json")
        made = exported(from_json(found, name_of(file)), to, fewest=fewest_dims)
        indented = orjson.dumps(made, option=orjson.OPT_INDENT_2)
    if output is not None:
        write_whole(output, indented)
    if json:
        typer.echo(orjson.dumps(made))
    else:
        typer.echo(indented if output is None else f"written: {output}")

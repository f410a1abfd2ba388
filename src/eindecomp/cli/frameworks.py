"""`eindecomp export`, a plan for other frameworks, and `eindecomp import`, a model of theirs.

Importing is the only command that runs the user's own code, and says so.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Annotated, Any, cast

import orjson
import typer

from eindecomp.cli.options import Json, Output, argument, flag, name_of, option, read
from eindecomp.cli.terminal import status_line
from eindecomp.engines.whole_files import write_whole
from eindecomp.errors import EinDecompError, InputError, PlanError, needing_extras, suggest
from eindecomp.frontends.placements import Target, exported
from eindecomp.graph.graph import Graph
from eindecomp.store.plan_file import from_json


def export(
    file: Annotated[str, argument("FILE", "a saved plan (.json); - is standard input")],
    to: Annotated[
        Target,
        typer.Option(
            help="DTensor's placements, JAX's partition specs, or the tp_plan of Hugging Face"
        ),
    ],
    fewest_dims: Annotated[
        bool,
        flag(
            "--fewest-dims",
            "for DTensor: make one mesh dimension of axes that the plan never keeps apart",
        ),
    ] = False,
    output: Output = None,
    json: Json = False,
) -> None:
    """Write a plan's layouts for PyTorch, JAX or Hugging Face.

    Prints JSON, or writes it to a file. Needs no framework. A plan that the framework cannot
    express is refused with the reason.

    Examples:
        eindecomp export plan.json --to dtensor
        eindecomp export plan.json --to jax -o shardings.json
    """
    given = read(file)
    if not isinstance(given, bytes):
        raise PlanError(f"{name_of(file)} is a graph: plan it first, with -o plan.json")
    made = exported(from_json(given, name_of(file)), to, fewest=fewest_dims)
    indented = orjson.dumps(made, option=orjson.OPT_INDENT_2)
    if output is not None:
        write_whole(output, indented)
    if json:
        typer.echo(orjson.dumps(made))
    else:
        typer.echo(indented if output is None else f"written: {output}")


def torch_module(
    factory: Annotated[
        str,
        argument(
            "MODULE:FACTORY",
            "a function without arguments that returns a torch.nn.Module and its example "
            "inputs: (module, args) or (module, args, kwargs)",
        ),
    ],
    output: Output = None,
    json: Json = False,
) -> None:
    """Import a PyTorch module. This imports MODULE and calls FACTORY: it runs their code.

    Weights on the meta device need no memory.

    Examples:
        eindecomp import torch mymodel:make -o model.ein
    """

    def make() -> Graph:
        from eindecomp.frontends.torch.importing import from_torch

        make_module = find(factory)
        with blaming(factory):
            made: Any = make_module()
        kwargs: Any = None
        match made:
            case (module, example) if callable(module):
                pass
            case (module, example, kwargs) if callable(module) and isinstance(kwargs, Mapping):
                pass
            case _:
                raise InputError(f"{factory} returns (module, args) or (module, args, kwargs)")
        # It logs the traceback of an error that it raises as well.
        logging.getLogger("torch._subclasses.fake_tensor").disabled = True
        with blaming(factory):
            return from_torch(module, example, example_kwargs=cast("Any", kwargs))

    _import(make, factory, output, json)


def jax_function(
    factory: Annotated[
        str,
        argument(
            "MODULE:FACTORY",
            "a function without arguments that returns a function and its example arguments: "
            "(fn, x, y)",
        ),
    ],
    output: Output = None,
    json: Json = False,
) -> None:
    """Import a JAX function. This imports MODULE and calls FACTORY: it runs their code.

    Examples:
        eindecomp import jax mymodel:make -o model.ein
    """

    def make() -> Graph:
        from eindecomp.frontends.jax.importing import from_jax

        make_function = find(factory)
        with blaming(factory):
            match make_function():
                case (fn, *args) if callable(fn):
                    return from_jax(fn, *args)
                case _:
                    raise InputError(f"{factory} returns (function, argument, …)")

    _import(make, factory, output, json)


def hugging_face(
    folder: Annotated[Path, argument("DIR", "a folder with a model's config.json")],
    batch: Annotated[int, option("N", "how many sequences or images", min=1)] = 1,
    tokens: Annotated[int, option("N", "how many tokens a sequence has", min=1)] = 128,
    dtype: Annotated[
        str | None, typer.Option(help="the type of the weights; by default the model's")
    ] = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Import a Hugging Face model from its config.json; weights are not read.

    The model's code is that of the installed transformers package: none of DIR is run.

    Examples:
        eindecomp import hf DIR --tokens 2048 -o model.ein
    """

    def make() -> Graph:
        from eindecomp.frontends.torch.hugging_face import from_folder

        return from_folder(folder, batch=batch, tokens=tokens, dtype=dtype)

    _import(make, str(folder), output, json)


IMPORTS = {"torch": torch_module, "jax": jax_function, "hf": hugging_face}
"""The commands of `eindecomp import`."""


def _import(make: Callable[[], Graph], what: str, output: Path | None, json: bool) -> None:
    """Import, and write or print what came of it."""
    with needing_extras(), status_line(f"importing {what}"):
        graph = make()
        text = f"{graph}\n"
    if output is not None:
        write_whole(output, text.encode())
    if json:
        tensors = {"inputs": graph.inputs, "outputs": graph.outputs}
        record = {
            role: [
                {"name": v.name, "labels": v.labels, "shape": v.shape, "dtype": v.dtype.name}
                for v in vertices
            ]
            for role, vertices in tensors.items()
        }
        typer.echo(orjson.dumps({"vertices": len(graph), **record, "text": str(graph)}))
    elif output is not None:
        inputs, outputs = len(graph.inputs), ", ".join(v.name for v in graph.outputs)
        typer.echo(f"{len(graph)} vertices, {inputs} of them inputs; outputs: {outputs}")
    else:
        typer.echo(text, nl=False)


# The user's own code


def find(text: str) -> Any:
    """The function `package.module:name`, after importing the module, from here or as installed."""
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise typer.BadParameter(f"it is such as package.module:name, not {text!r}")
    typer.echo(f"eindecomp: importing {module}, which runs its code", err=True)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    with blaming(module):
        try:
            member: Any = import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
            raise InputError(f"there is no module {error.name!r} here, nor installed") from None
    for part in name.split("."):
        if not hasattr(member, part):
            known = [each for each in dir(member) if not each.startswith("_")]
            raise InputError(f"{module} has no {part!r}{suggest(part, known)}")
        member = getattr(member, part)
    if not callable(member):
        raise InputError(f"{text} is a {type(member).__name__}, not a function")
    return member


@contextmanager
def blaming(what: str) -> Generator[None]:
    """Report an error of the user's code on one line, with the place where it was raised."""
    try:
        yield
    except (typer.BadParameter, KeyboardInterrupt):
        raise
    except EinDecompError as error:
        if error.__cause__ is None or not (place := _place(error.__cause__)):
            raise
        raise type(error)(f"{str(error).removesuffix(place)}{place}") from error
    except (Exception, SystemExit) as error:
        text = str(error).strip().splitlines() or ["no message"]
        raise InputError(f"{what}: {type(error).__name__}: {text[0]}{_place(error)}") from error


def _place(error: BaseException) -> str:
    """The innermost line of the user's code that an error came through, if it came through any."""
    own = str(Path(__file__).parents[1])
    for frame in reversed(extract_tb(error.__traceback__)):
        file = frame.filename
        if "site-packages" not in file and not file.startswith((own, "<frozen")):
            return f" (at {file}:{frame.lineno})"
    return ""

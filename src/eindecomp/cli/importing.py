"""`eindecomp import torch | jax | hf`: a model of another framework as a graph.

This is the only command that runs the user's own code, and says so.
"""

from __future__ import annotations

import inspect
import logging
import re
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from eindecomp.cli.examples import epilog, paragraphs
from eindecomp.cli.files import to_write
from eindecomp.cli.request import Json
from eindecomp.cli.terminal import interruptible, status_line
from eindecomp.cli.texts import pairs_from
from eindecomp.engines.whole_files import write_whole
from eindecomp.errors import EinDecompError, InputError, needing_extras, suggest
from eindecomp.lang.dtypes import dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from numpy.typing import NDArray

    from eindecomp.graph.graph import Graph


commands = typer.Typer(
    no_args_is_help=True, help="Turn a model of PyTorch or JAX into a graph (.ein)."
)
Output = Annotated[
    Path | None,
    to_write("-o", "--output", help="write the graph to this file instead of printing it"),
]
_SHAPE = re.compile(r"(?:(?P<type>[a-z]\w*)\s*)?\[(?P<sizes>[\d,\s]*)\]|(?P<bare>\d+(?:,\d+)*)")


def _framework(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def add(command: Callable[..., None]) -> Callable[..., None]:
        text = paragraphs(command.__doc__)
        return commands.command(name, help=text, epilog=epilog(f"import {name}"))(command)

    return add


@_framework("torch")
def torch_module(
    factory: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FACTORY",
            help="a function without arguments that returns a torch.nn.Module and its example "
            "inputs: (module, args) or (module, args, kwargs)",
        ),
    ],
    output: Output = None,
    json: Json = False,
) -> None:
    """Import a PyTorch module. This imports MODULE and calls FACTORY: it runs their code.

    Weights on the meta device need no memory.
    """

    def make() -> Graph:
        from eindecomp.frontends.torch.importing import from_torch

        make_module = find(factory)
        _check_callable(factory, make_module)
        with blaming(factory):
            made = make_module()
        match made:
            case (module, example, *more) if callable(module) and _are_keywords(more):
                kwargs = more[0] if more else None
            case _:
                raise InputError(f"{factory} returns (module, args) or (module, args, kwargs)")
        with blaming(factory), without_tracebacks():
            return from_torch(module, example, example_kwargs=kwargs)

    _import(make, factory, output, json)


@_framework("jax")
def jax_function(
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="a function of arrays, whose shapes --shape gives; or one without arguments that "
            "returns a function and its example arguments: (fn, x, y)",
        ),
    ],
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            metavar="x=float32[2,3]",
            help="the type and shape of an argument; repeat it for several",
        ),
    ] = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Import a JAX function. This imports MODULE and traces FUNCTION: it runs their code."""

    def make() -> Graph:
        from eindecomp.frontends.jax.importing import from_jax

        fn = find(function)
        with blaming(function):
            fn, *args = _with_shapes(function, fn, shape or ())
            return from_jax(fn, *args)

    _import(make, function, output, json)


@_framework("hf")
def hugging_face(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="a folder with a model's config.json")
    ],
    batch: Annotated[
        int, typer.Option(metavar="N", min=1, help="how many sequences or images")
    ] = 1,
    tokens: Annotated[
        int, typer.Option(metavar="N", min=1, help="how many tokens a sequence has")
    ] = 128,
    dtype: Annotated[
        str | None, typer.Option(help="the type of the weights; by default the model's")
    ] = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Import a Hugging Face model from its config.json; weights are not read.

    The model's code is that of the installed transformers package: none of DIR is run.
    """

    def make() -> Graph:
        from eindecomp.frontends.torch.hugging_face import from_folder

        return from_folder(folder, batch=batch, tokens=tokens, dtype=dtype)

    _import(make, str(folder), output, json)


def _import(make: Callable[[], Graph], what: str, output: Path | None, json: bool) -> None:
    """Import, and write or print what came of it."""
    with needing_extras(), interruptible("no graph yet"), status_line() as say:
        say(f"importing {what}")
        graph = make()
        text = f"{graph}\n"
    if output is not None:
        write_whole(output, text.encode())
    if json:
        typer.echo(_as_json(graph))
    elif output is not None:
        inputs, outputs = len(graph.inputs), ", ".join(v.name for v in graph.outputs)
        typer.echo(f"{len(graph)} vertices, {inputs} of them inputs; outputs: {outputs}")
    else:
        typer.echo(text, nl=False)


def _as_json(graph: Graph) -> str:
    import orjson

    def tensors(vertices: Sequence[Any]) -> list[dict[str, object]]:
        return [
            {"name": v.name, "labels": v.labels, "shape": v.shape, "dtype": v.dtype.name}
            for v in vertices
        ]

    found = {
        "vertices": len(graph),
        "inputs": tensors(graph.inputs),
        "outputs": tensors(graph.outputs),
        "text": str(graph),
    }
    return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()


def _with_shapes(name: str, fn: Any, texts: Sequence[str]) -> tuple[Any, ...]:
    """A function and its arguments: as it returns them itself, or of the shapes given."""
    _check_callable(name, fn)
    parameters = inspect.signature(fn).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind < p.VAR_POSITIONAL]
    given = pairs_from("--shape", "x=float32[2,3]", texts)
    if not needed and not given:
        match fn():
            case (made, *args) if callable(made):
                return made, *args
            case _:
                raise InputError(f"{name} returns (function, argument, …)")
    if lacking := [each for each in needed if each not in given]:
        raise InputError(f"{name}: no --shape is given for {', '.join(lacking)}")
    if unknown := [each for each in given if each not in {p.name for p in parameters}]:
        raise InputError(f"{name} has no parameter {unknown[0]!r}")
    ordered = [p.name for p in parameters if p.name in given]
    return fn, *(_array(each, given[each]) for each in ordered)


def _array(name: str, text: str) -> NDArray[Any]:
    """An array of zeros, in no memory, of a type and shape such as `float32[2,3]`, or `2,3`.

    >>> found = _array("x", "int32[2, 3]")
    >>> found.dtype, found.shape, _array("x", "4").dtype
    (dtype('int32'), (2, 3), dtype('float32'))
    """
    if (found := _SHAPE.fullmatch(text)) is None:
        raise typer.BadParameter(f"--shape is such as {name}=float32[2,3], not {name}={text}")
    sizes = found["bare"] or found["sizes"] or ""
    shape = tuple(int(n) for n in sizes.split(",") if n.strip())
    return np.broadcast_to(np.zeros((), dtype(found["type"] or "float32")), shape)


def _are_keywords(more: Sequence[Any]) -> bool:
    """Whether what a factory returns behind a module and its arguments is as it should be."""
    return not more or (len(more) == 1 and isinstance(more[0], Mapping))


def _check_callable(name: str, found: object) -> None:
    if not callable(found):
        raise InputError(f"{name} is a {type(found).__name__}, not a function")


# The user's own code


def find(text: str) -> Any:
    """What `package.module:name` names, after importing the module, from here or as installed."""
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise typer.BadParameter(f"it is such as package.module:name, not {text!r}")
    typer.echo(f"eindecomp: importing {module}, which runs its code", err=True)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    with blaming(module):
        try:
            found: Any = import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
            raise InputError(f"there is no module {error.name!r} here, nor installed") from None
    for part in name.split("."):
        if not hasattr(found, part):
            known = [each for each in dir(found) if not each.startswith("_")]
            raise InputError(f"{module} has no {part!r}{suggest(part, known)}")
        found = getattr(found, part)
    return found


@contextmanager
def blaming(what: str) -> Generator[None]:
    """Tell an error of the user's code in a line, with the place where it was raised."""
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
        told = f"{what}: {type(error).__name__}: {text[0]}{_place(error)}"
        raise InputError(told) from error


@contextmanager
def without_tracebacks() -> Generator[None]:
    """Without the traceback that torch logs of an error which it raises as well."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was_disabled


def _place(error: BaseException) -> str:
    """The innermost line of the user's code that an error came through, if it came through any."""
    frames = reversed(extract_tb(error.__traceback__))
    found = (f" (at {f.filename}:{f.lineno})" for f in frames if _is_users(f.filename))
    return next(found, "")


def _is_users(file: str) -> bool:
    own = str(Path(__file__).parents[1])
    return "site-packages" not in file and not file.startswith((own, "<frozen"))

"""Finding and calling the user's own code, which only `eindecomp import` does, and says so."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

import typer

from eindecomp.errors import EinDecompError, InputError, suggest

if TYPE_CHECKING:
    from collections.abc import Generator


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

"""Arrays and numbers for a graph's inputs, from files that may be damaged or somebody else's."""

from __future__ import annotations

import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX, open_memmap

from eindecomp.errors import InputError, suggest

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from eindecomp.graph.graph import Graph

    Array = np.ndarray[Any, Any]


_ZIP = b"PK"


def given_arrays(graph: Graph, texts: Sequence[str]) -> dict[str, Any]:
    """Arrays and scalars from files; .npy files stay on disk and are read tile by tile."""
    found: dict[str, Any] = {}
    known = [*(vertex.name for vertex in graph.inputs), *graph.scalars]
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            found |= _npz_arrays(Path(text))
        elif name in graph.scalars:
            found[name] = _number(name, value)
        elif name in known:
            found[name] = _npy_array(Path(value))
        else:
            raise InputError(f"{name!r} is not an input of the graph{suggest(name, known)}")
    return found


def _npy_array(path: Path) -> Array:
    if zipfile.is_zipfile(path):
        raise InputError(f"{path} holds arrays by name: give it alone, as --inputs {path}")
    with _reading(path, ".npy"):
        with path.open("rb") as opened:
            _check_start(path, opened, MAGIC_PREFIX, ".npy")
        return open_memmap(path, mode="r")


def _npz_arrays(path: Path) -> dict[str, Array]:
    with _reading(path, ".npz"), path.open("rb") as opened:
        if opened.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX:
            raise InputError(f"{path} holds one array: say which input it is, as X={path}")
        opened.seek(0)
        _check_start(path, opened, _ZIP, ".npz")
        with np.load(opened, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}


def _check_start(path: Path, opened: IO[bytes], start: bytes, what: str) -> None:
    """Refuse a file of another kind, for which NumPy's advice would be to load it unsafely."""
    if opened.read(len(start)) != start:
        raise InputError(f"{path} is no {what} file: it does not begin as one")
    opened.seek(0)


@contextmanager
def _reading(path: Path, what: str) -> Generator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # a damaged file raises anything, from zlib's errors to MemoryError
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise InputError(f"{path} is no {what} file of numbers: {error}") from None


def _number(name: str, text: str) -> complex | float | int:
    for read in (int, float, complex):
        try:
            return read(text)
        except ValueError:
            continue
    raise InputError(f"scalar {name!r} is a number, not {text!r}")

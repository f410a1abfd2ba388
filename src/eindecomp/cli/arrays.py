"""Arrays and numbers for a graph's inputs, as they are given on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from eindecomp.engines.stored_inputs import (
    KINDS,
    check_regular,
    check_start,
    npy_array,
    open_stored,
    reading,
)
from eindecomp.errors import InputError, suggest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.graph.graph import Graph

    Array = np.ndarray[Any, Any]


_ZIP = b"PK"


def given_arrays(graph: Graph, texts: Sequence[str]) -> dict[str, Any]:
    """Arrays and scalars from files; but for .npz they stay on disk and are read tile by tile."""
    found: dict[str, Any] = {}
    known = [*(vertex.name for vertex in graph.inputs), *graph.scalars]
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            found |= _npz_arrays(Path(text))
        elif name in graph.scalars:
            found[name] = _number(name, value)
        elif name in known:
            found[name] = _stored(name, value)
        else:
            raise InputError(f"{name!r} is not an input of the graph{suggest(name, known)}")
    return found


def _stored(name: str, text: str) -> Any:
    """What lies in a file; a name without a known ending is that of a .npy file."""
    if Path(text.partition("#")[0]).suffix.lower() in KINDS:
        return open_stored(text, name)
    return npy_array(Path(text))


def _npz_arrays(path: Path) -> dict[str, Array]:
    check_regular(path)
    with reading(path, ".npz"), path.open("rb") as opened:
        if opened.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX:
            raise InputError(f"{path} holds one array: say which input it is, as X={path}")
        opened.seek(0)
        check_start(path, opened, _ZIP, ".npz")
        with np.load(opened, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}


def _number(name: str, text: str) -> complex | float | int:
    for read in (int, float, complex):
        try:
            return read(text)
        except ValueError:
            continue
    raise InputError(f"scalar {name!r} is a number, not {text!r}")

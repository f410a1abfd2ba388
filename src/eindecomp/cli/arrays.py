"""Arrays and numbers for a graph's inputs, as the command line gives them, and its outputs."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from eindecomp.engines.array_files import (
    INPUT_KINDS,
    check_regular,
    check_start,
    npy_array,
    open_stored,
    reading,
)
from eindecomp.errors import InputError, suggest
from eindecomp.lang.dtypes import Kind, kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex

    Array = np.ndarray[Any, Any]


_ZIP = b"PK"


def given_arrays(graph: Graph, texts: Sequence[str]) -> dict[str, Any]:
    """Arrays and scalars from files; but for .npz they stay on disk and are read tile by tile."""
    found: dict[str, Any] = {}
    known = [*(vertex.name for vertex in graph.inputs), *graph.scalars]
    for text in texts:
        if text == "-":
            raise InputError("arrays are read from files: --data takes no standard input")
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
    if Path(text.partition("#")[0]).suffix.lower() in INPUT_KINDS:
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


def random_inputs(graph: Graph, seed: int) -> dict[str, Any]:
    """Numbers for all inputs and scalars of a graph, the same for a seed."""
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for vertex in graph.inputs:
        try:
            found[vertex.name] = _random_array(vertex, rng)
        except MemoryError as error:
            raise InputError(f"no memory for random numbers as {vertex}: {error}") from None
    return found | {name: dtype.type(1).item() for name, dtype in graph.scalars.items()}


def _random_array(vertex: Vertex, rng: np.random.Generator) -> Array:
    if kind(vertex.dtype) in (Kind.BOOL, Kind.INT):
        return rng.integers(0, 2, vertex.shape, vertex.dtype)
    # In float32 unless that rounds: what is drawn wider takes twice the memory.
    wide = vertex.dtype.name in ("float64", "complex128")
    drawn = rng.standard_normal(vertex.shape, np.float64 if wide else np.float32)
    return drawn.astype(vertex.dtype, copy=False)


def write_npz(opened: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """Write arrays by name as NumPy's .npz does, one after another."""
    with zipfile.ZipFile(opened, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)

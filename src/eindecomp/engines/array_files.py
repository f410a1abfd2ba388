"""Inputs and outputs by the paths of their files: `.npy`, `.zarr` and, to read, `.safetensors`.

Inputs are read tile by tile. Files may be damaged or somebody else's: they are checked, and nothing
in them is ever unpickled. Devices write outputs where they lie: whoever runs the job creates the
file beside its place, devices write their blocks, and it gets its name when all have.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import zipfile
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX, open_memmap, write_array

from eindecomp.engines.safetensors_file import open_tensor
from eindecomp.errors import InputError, extra, quote, suggest
from eindecomp.graph.graph import Graph
from eindecomp.graph.vertex import Shape
from eindecomp.lang.dtypes import BFLOAT16, Array, DType
from eindecomp.layout.boxes import Box, shape_of
from eindecomp.planner.costs.byte_sizes import show_bytes

GivenOutputs = Mapping[str, str | Path] | str | None
"""Files by output, or as the command line writes them: `Z=z.npy,Y=y.zarr`."""

INPUT_KINDS = (".npy", ".zarr", ".safetensors")
_OUTPUT_KINDS = (".npy", ".zarr")
_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")


# Inputs


def open_stored(place: str | Path, name: str) -> Any:
    """The array in a file, of which nothing is read until it is sliced.

    A `.safetensors` file and a group of `.zarr` hold several: `weights.safetensors#W1` says which
    is meant, otherwise it is the one with the input's own name.
    """
    text, mark, fragment = os.fspath(place).partition("#")
    if Path(os.fspath(place)).exists():  # a name may have such a sign in it
        text, mark, fragment = os.fspath(place), "", ""
    path, within = Path(text), fragment if mark else name
    kind = path.suffix.lower()
    if kind not in INPUT_KINDS:
        raise InputError(
            f"input {name!r}: {quote(text, 200)} is no file of {', '.join(INPUT_KINDS)}"
        )
    try:
        if kind == ".safetensors":
            check_regular(path)
            return open_tensor(path, within)
        if kind == ".zarr":
            return _zarr_array(path, within, is_named=bool(mark))
        if mark:
            raise _holds_one(path, fragment)
        return npy_array(path)
    except InputError as error:
        raise InputError(f"input {name!r}: {error}") from None
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"input {name!r}: {path} cannot be read: {why}") from None


def npy_array(path: Path) -> Array:
    """The array of a `.npy` file, memory-mapped."""
    check_regular(path)
    if zipfile.is_zipfile(path):
        raise InputError(f"{path} holds arrays by name: give it alone, as --data {path}")
    with reading(path, ".npy"):
        with path.open("rb") as opened:
            check_start(path, opened, MAGIC_PREFIX, ".npy")
        return open_memmap(path, mode="r")


_CODECS = {
    "adler32", "astype", "bitround", "blosc", "bytes", "bz2", "crc32", "crc32c", "delta",
    "fixedscaleoffset", "fletcher32", "gzip", "jenkins_lookup3", "lz4", "lzma", "packbits",
    "pcodec", "quantize", "sharding_indexed", "shuffle", "transpose", "zfpy", "zlib", "zstd",
}  # fmt: skip
"""The codecs of numbers that read bytes and nothing else."""


def check_regular(path: Path) -> None:
    """Refuse devices and pipes, which have no end, and folders; what is missing is for others."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is no regular file, and only those are read as inputs")


def check_start(path: Path, opened: IO[bytes], start: bytes, what: str) -> None:
    """Refuse a file of another kind, for which NumPy's advice would be to load it unsafely."""
    if opened.read(len(start)) != start:
        raise InputError(f"{path} is no {what} file: it does not begin as one")
    opened.seek(0)


@contextmanager
def reading(path: Path, what: str) -> Generator[None]:
    """Says which file is damaged."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # a damaged file raises anything, from zlib's errors to MemoryError
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise InputError(f"{path} is no {what} file of numbers: {error}") from None


def _zarr_array(path: Path, name: str, *, is_named: bool) -> Any:
    """An array of zarr, of which chunks are read as they are asked for."""
    zarr = extra("zarr")
    if not path.exists():
        raise InputError(f"there is no {path}")
    if not path.is_dir():
        check_regular(path)
    with reading(path, ".zarr"):
        array = zarr.open(path, mode="r")
        if isinstance(array, zarr.Group):
            group, array = array, array.get(name)
            if not isinstance(array, zarr.Array):
                some = ", ".join(sorted(group.array_keys()))
                raise InputError(f"{path} has no array {quote(name)}: it has {some or 'none'}")
        elif is_named:
            raise _holds_one(path, name)
        _check_codecs(path, array.metadata)
        return array


def _holds_one(path: Path, asked: str) -> InputError:
    return InputError(f"{path} holds one array: there is no {quote(asked)} in it")


def _check_codecs(path: Path, metadata: Any) -> None:
    """Refuse chunks in a code that is not known to be safe: some run what is written in a chunk."""
    made = metadata.to_dict()
    codecs = [made.get(key) for key in ("codecs", "compressor", "filters")]
    # Codecs have others inside them, which JSON names alike however deep they are.
    used = re.findall(r'"(?:name|id)": "([^"]*)"', json.dumps(codecs, default=_plain_codec))
    unknown = sorted({name.removeprefix("numcodecs.") for name in used} - _CODECS)
    if unknown:
        raise InputError(f"{path} holds chunks coded by {', '.join(unknown)}, which are not read")


def _plain_codec(codec: Any) -> Any:
    """A codec of zarr's or of numcodecs' as what JSON has."""
    return codec.get_config() if hasattr(codec, "get_config") else codec.to_dict()


# Outputs


def check_outputs(graph: Graph, given: GivenOutputs) -> dict[str, Path]:
    """The file of each output that is to be written; refuses what could not be.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> graph = parse("input X[i: 4]\\nZ[i] <- X[i] + 1\\noutput Z")
    >>> [path.name for path in check_outputs(graph, "Z=z.npy").values()]
    ['z.npy']
    """
    if isinstance(given, str):
        given = dict(_pair(text) for text in given.split(","))
    names = [vertex.name for vertex in graph.outputs]
    paths: dict[str, Path] = {}
    for name, place in (given or {}).items():
        if name not in names:
            raise InputError(f"outputs: there is no output {name!r}{suggest(name, names)}")
        path = Path(place).absolute()
        if path in paths.values():
            raise InputError(f"outputs: {name} and another one cannot both be written to {path}")
        _check_place(path, name, graph[name].dtype)
        paths[name] = path
    return paths


def _pair(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not equals:
        raise InputError(f"outputs are files by name, as Z=z.npy, not {text!r}")
    return name.strip(), path.strip()


def _check_place(path: Path, name: str, dtype: DType) -> None:
    if path.suffix not in _OUTPUT_KINDS:
        raise InputError(f"outputs: {name} is written to a .npy or .zarr file, not {path.name}")
    if path.suffix == ".zarr":
        extra("zarr")
        if dtype == BFLOAT16:
            raise InputError(f"outputs: zarr has no bfloat16, which {name} is; use .npy")
    if not path.parent.is_dir():
        raise InputError(f"outputs: there is no folder {path.parent} for {name}")
    # What is there is replaced, and must not be somebody's folder of another kind.
    if path.is_dir() and not any((path / file).exists() for file in _ZARR_FILES):
        raise InputError(f"outputs: {path}, where {name} is to be written, is a folder")


def chunks_for(shape: Shape, boxes: Collection[Box]) -> tuple[int, ...]:
    """The sides of the largest tile: as many chunks as possible belong to one tile each."""
    sides = [shape_of(box) for box in boxes] or [shape]
    return tuple(max(1, *(each[axis] for each in sides)) for axis in range(len(shape)))


def can_write_at_once(path: Path, shape: Shape, boxes: Collection[Box]) -> bool:
    """Whether tiles can be written at the same time: in `.zarr`, if every chunk is of one tile.

    >>> can_write_at_once(Path("z.zarr"), (5,), [((0, 3),), ((3, 5),)])
    True
    >>> can_write_at_once(Path("z.zarr"), (5,), [((0, 2),), ((2, 5),)])
    False
    """
    if path.suffix == ".npy":
        return True
    return all(
        low % side == 0 and (high % side == 0 or high == size)
        for box in boxes
        for (low, high), side, size in zip(box, chunks_for(shape, boxes), shape, strict=True)
    )


def create_file(part: Path, kind: str, shape: Shape, dtype: DType, boxes: Collection[Box]) -> None:
    """Make a file of the kind `.npy` or `.zarr` that devices can write blocks to."""
    if kind == ".zarr":
        extra("zarr").create_array(part, shape=shape, dtype=dtype, chunks=chunks_for(shape, boxes))
        return
    stored = np.dtype("V2") if dtype == BFLOAT16 else dtype
    if 0 in shape or not shape:
        with part.open("wb") as opened:
            write_array(opened, np.zeros(shape, stored), allow_pickle=False)
    else:
        open_memmap(part, "w+", stored, shape)
        _allocate(part)


def _allocate(path: Path) -> None:
    """Set aside the room that a file has by its size; where there is none, remove the file.

    A process that writes to a mapped file where the disk has no room is killed.
    """
    size = path.stat().st_size
    try:
        with path.open("r+b") as opened:
            os.posix_fallocate(opened.fileno(), 0, size)
    except OSError as error:
        path.unlink(missing_ok=True)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(path.parent).free
        why = f"{error.strerror}: it takes {show_bytes(size)}, {show_bytes(free)} are free"
        raise OSError(error.errno, why, str(path)) from error


def write_block(part: Path, kind: str, box: Box, block: Array) -> None:
    """Write a block to a file that was created."""
    where = tuple(slice(low, high) for low, high in box) if box else ...
    if kind == ".zarr":
        extra("zarr").open_array(part, mode="r+")[where] = block
        return
    whole = open_memmap(part, "r+")
    whole[where] = block.view(whole.dtype)
    whole.flush()

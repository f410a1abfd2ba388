"""Tensors of safetensors files, left where they are: nothing is read until it is used.

The safetensors package checks each file's header, but gives NumPy copies of whole tensors. So the
arrays here are views of the memory-mapped file, whose pages are read as tiles of them are. What is
written gets a stamp, by which damage is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from eindecomp.engines.whole_files import flush, naming_file
from eindecomp.errors import InputError, extra, quote, shorten
from eindecomp.lang.dtypes import Array, DType
from eindecomp.lang.dtypes import dtype as dtype_of

_CHUNK = 1 << 22  # bytes that are read at a time


@dataclass(frozen=True, slots=True)
class FileStamp:
    """The size of a file in bytes, and their BLAKE2b digest."""

    nbytes: int
    digest: str

    def to_json(self) -> dict[str, Any]:
        """As a manifest has it."""
        return {"bytes": self.nbytes, "blake2b": self.digest}

    def check(self, path: Path) -> None:
        """Read a file and refuse it unless it is the one that was written."""
        if not path.is_file():
            raise InputError(f"{path} is missing")
        size = path.stat().st_size
        if size != self.nbytes:
            raise InputError(f"{path} has {size} bytes, but {self.nbytes} were written")
        with path.open("rb", buffering=0) as file:
            stamped = stamp(iter(lambda: file.read(_CHUNK), b""))
        if stamped != self:
            raise InputError(f"{path} has not the bytes that were written: its digest differs")


def stamp(parts: Iterable[Any], into: IO[bytes] | None = None) -> FileStamp:
    """The stamp of bytes, which are written to a file as they are read.

    It is of what was to be written, and so also tells what the disk got wrong.
    """
    hashed, size = blake2b(digest_size=32), 0
    for part in parts:
        if into is not None:
            into.write(part)
        hashed.update(part)
        size += len(part)
    return FileStamp(size, hashed.hexdigest())


NAMES = {
    "bool": "BOOL",
    **{f"{kind}{n}": f"{kind[0].upper()}{n}" for kind in ("int", "uint") for n in (8, 16, 32, 64)},
    **{f"float{n}": f"F{n}" for n in (16, 32, 64)},
    "bfloat16": "BF16",
    "complex64": "C64",
}
"""The names that safetensors has for our types; it has none for complex128."""
TYPES: dict[str, DType] = {stored: dtype_of(name) for name, stored in NAMES.items()}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor is stored."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    """The offset of its first byte in the file."""

    def view(self, content: Array) -> Array:
        """The tensor, in the bytes of its file."""
        dtype = TYPES[self.dtype]
        raw = content[self.start : self.start + prod(self.shape) * dtype.itemsize]
        if self.start % dtype.itemsize:  # loops and BLAS need aligned numbers
            raw = raw.copy()
        return raw.view(dtype).reshape(self.shape)


def map_file(path: Path) -> Array:
    """The bytes of a file, none of which is read yet."""
    return np.asarray(np.memmap(path, np.uint8, "r"))


def tensors_of(path: Path) -> tuple[dict[str, StoredTensor], Mapping[str, str]]:
    """The tensors of one file, which the safetensors package checks, and the file's metadata."""
    if not path.is_file():
        raise InputError(f"{path} is missing")
    safetensors = extra("safetensors")
    try:
        with safetensors.safe_open(path, framework="numpy") as opened:
            metadata: Mapping[str, str] = opened.metadata() or {}
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path} is no whole safetensors file: {shorten(str(error))}") from None
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entries: dict[str, Any] = json.loads(file.read(length))
    entries.pop("__metadata__", None)
    tensors: dict[str, StoredTensor] = {}
    for name, entry in entries.items():
        place = 8 + length + entry["data_offsets"][0]
        tensors[name] = StoredTensor(path, entry["dtype"], tuple(entry["shape"]), place)
    return tensors, metadata


def write_tensors(
    path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> FileStamp:
    """Write a file, wait until it is on disk, and give its stamp.

    The safetensors package would first copy all arrays.
    """
    # Its own order, in which all numbers are aligned.
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in order:
        begin, end = end, end + arrays[name].nbytes
        stored = NAMES[arrays[name].dtype.name]
        shape = arrays[name].shape
        header[name] = {"dtype": stored, "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    contents = (np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8) for name in order)
    parts = chain((len(text).to_bytes(8, "little"), text), (each.data for each in contents))
    with naming_file(path):
        with path.open("wb") as file:
            written = stamp(parts, file)
        flush(path)
    return written


def open_tensor(path: Path, name: str) -> Array:
    """A view of one tensor in its file."""
    tensors, _ = tensors_of(path)
    stored = tensors.get(name)
    if stored is None:
        some = shorten(", ".join(tensors), 200)
        raise InputError(f"{path} has no tensor {quote(name)}: it has {some or 'none'}")
    if stored.dtype not in TYPES:
        raise InputError(f"{path}: tensor {quote(name)} is of type {stored.dtype}")
    return stored.view(map_file(path))

"""Tensors of safetensors files, left where they are: nothing is read until it is used.

The safetensors package checks each file's header, but gives NumPy copies of whole tensors. So the
arrays here are views of the memory-mapped file, whose pages are read as tiles of them are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from eindecomp.engines.extras import extra
from eindecomp.engines.file_stamp import FileStamp
from eindecomp.engines.whole_folder import flush
from eindecomp.errors import InputError, quote, shorten
from eindecomp.lang.dtypes import dtype as dtype_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]

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
        found = content[self.start : self.start + prod(self.shape) * dtype.itemsize]
        if self.start % dtype.itemsize:  # loops and BLAS need aligned numbers
            found = found.copy()
        return found.view(dtype).reshape(self.shape)


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
        entries: Mapping[str, Any] = json.loads(file.read(length))
    tensors = {
        name: StoredTensor(
            path, entry["dtype"], tuple(entry["shape"]), 8 + length + entry["data_offsets"][0]
        )
        for name, entry in entries.items()
        if name != "__metadata__"
    }
    return tensors, metadata


def write_tensors(path: Path, arrays: Mapping[str, Array], metadata: dict[str, str]) -> None:
    """Write a file, and wait until it is on disk."""
    library, of_arrays = extra("safetensors"), extra("safetensors.numpy")
    try:
        of_arrays.save_file(dict(arrays), path, metadata)
    except library.SafetensorError as error:
        raise InputError(f"{path}: cannot be written: {shorten(str(error))}") from error
    flush(path)


def stamp_of(path: Path, arrays: Mapping[str, Array]) -> FileStamp:
    """The stamp of a file with these arrays, of which only the header is read back.

    So it also tells what the disk got wrong while the file was written.
    """
    tensors, _ = tensors_of(path)
    order = sorted(tensors, key=lambda name: tensors[name].start)
    with path.open("rb") as file:
        header = file.read(tensors[order[0]].start)
    size = len(header) + sum(arrays[name].nbytes for name in order)
    return FileStamp(size, checksum((arrays[name] for name in order), crc32(header)))


def checksum(arrays: Iterable[Array], begun: int = 0) -> int:
    """The CRC-32 of the bytes of arrays, one after the other, and of what was before them."""
    for array in arrays:
        begun = crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, begun)
    return begun


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

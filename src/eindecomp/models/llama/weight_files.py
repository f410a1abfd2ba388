"""The tensors of a safetensors folder, left in their files: nothing is read until it is used.

The safetensors package checks each file's header, but gives NumPy copies of whole tensors. So the
arrays here are views of the memory-mapped file, whose pages are read as tiles of them are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from eindecomp.errors import InputError, quote, shorten
from eindecomp.lang.dtypes import BFLOAT16
from eindecomp.models.extras import extra
from eindecomp.models.llama.fields import check_folder, read_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
_TYPES: dict[str, DType] = {
    "F32": np.dtype("float32"),
    "F16": np.dtype("float16"),
    "BF16": BFLOAT16,
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor is stored."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    """The offset of its first byte in the file."""


class WeightFiles:
    """The tensors of a folder by name."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = check_folder(folder)
        self.tensors = _find(self.folder)
        self._maps: dict[Path, Array] = {}

    def array(self, name: str, shape: tuple[int, ...]) -> Array:
        """A view of a tensor in its file; it must have the given shape."""
        stored = self.tensors.get(name)
        if stored is None:
            raise InputError(f"{self.folder}: tensor {name!r} is missing")
        if stored.shape != shape:
            raise InputError(
                f"{stored.file}: tensor {name!r} has shape {quote(list(stored.shape))}, but "
                f"config.json makes it {list(shape)}"
            )
        if stored.dtype not in _TYPES:
            raise InputError(
                f"{stored.file}: tensor {name!r} is of type {stored.dtype}; supported are "
                f"{', '.join(_TYPES)}"
            )
        dtype = _TYPES[stored.dtype]
        if stored.file not in self._maps:
            self._maps[stored.file] = np.asarray(np.memmap(stored.file, np.uint8, "r"))
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        found = self._maps[stored.file][stored.start : stored.start + size]
        if stored.start % dtype.itemsize:  # loops and BLAS need aligned numbers
            found = found.copy()
        return found.view(dtype).reshape(shape)


def _find(folder: Path) -> dict[str, StoredTensor]:
    """The tensors of the single file, which transformers prefers, or else of the index."""
    if (folder / ADAPTER).exists():
        raise InputError(f"{folder / ADAPTER}: adapters are not supported: merge it into the model")
    if (folder / SINGLE).exists():
        return _header(folder / SINGLE)
    if not (folder / INDEX).exists():
        raise InputError(f"{folder} has neither {SINGLE} nor {INDEX}")
    return _sharded(folder)


def _sharded(folder: Path) -> dict[str, StoredTensor]:
    path = folder / INDEX
    weight_map: Any = read_json(path).get("weight_map")
    if type(weight_map) is not dict:
        raise InputError(f"{path}: weight_map is missing")
    files: dict[str, dict[str, StoredTensor]] = {}
    found: dict[str, StoredTensor] = {}
    places = cast("dict[str, Any]", weight_map)
    for name, file in places.items():
        if not _is_plain(file):
            raise InputError(
                f"{path}: tensor {quote(name)} is said to be in {quote(file)}, no file name"
            )
        if file not in files:
            files[file] = _header(folder / file)
        if name not in files[file]:
            raise InputError(
                f"{folder / file}: tensor {quote(name)} is missing, which {INDEX} promises"
            )
        found[name] = files[file][name]
    for file, tensors in files.items():
        for name in tensors:
            if places.get(name) != file:
                raise InputError(f"{folder / file}: tensor {quote(name)} is not where {INDEX} says")
    return found


def _is_plain(file: Any) -> bool:
    """Whether a name is that of a file in the same folder: an index must not point elsewhere."""
    return (
        isinstance(file, str)
        and file.endswith(".safetensors")
        and not any(mark in file for mark in ("/", "\\", "\0"))
        and Path(file).name == file
        and len(file.encode()) < 256
    )


def _header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of one file, which the safetensors package checks."""
    if not path.is_file():
        raise InputError(f"{path} is missing")
    safetensors = extra("safetensors")
    try:
        with safetensors.safe_open(path, framework="numpy"):
            pass
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path} is no whole safetensors file: {shorten(str(error))}") from None
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entries: Mapping[str, Any] = json.loads(file.read(length))
    return {
        name: StoredTensor(
            path, entry["dtype"], tuple(entry["shape"]), 8 + length + entry["data_offsets"][0]
        )
        for name, entry in entries.items()
        if name != "__metadata__"
    }

"""The tensors of a safetensors folder, left in their files: nothing is read until it is used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from eindecomp.engines.safetensors_file import map_file, tensors_of
from eindecomp.errors import InputError, quote
from eindecomp.models.llama.fields import check_folder, read_json

if TYPE_CHECKING:
    import numpy as np

    from eindecomp.engines.safetensors_file import StoredTensor

    Array = np.ndarray[Any, Any]

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
_TYPES = ("F32", "F16", "BF16")


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
        if stored.file not in self._maps:
            self._maps[stored.file] = map_file(stored.file)
        return stored.view(self._maps[stored.file])


def _find(folder: Path) -> dict[str, StoredTensor]:
    """The tensors of the single file, which transformers prefers, or else of the index."""
    if (folder / ADAPTER).exists():
        raise InputError(f"{folder / ADAPTER}: adapters are not supported: merge it into the model")
    if (folder / SINGLE).exists():
        return tensors_of(folder / SINGLE)[0]
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
            files[file] = tensors_of(folder / file)[0]
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

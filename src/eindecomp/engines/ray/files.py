"""Arrays in files that every worker can read again, also after others were lost."""

from __future__ import annotations

import shutil
import socket
import tempfile
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from eindecomp.engines.tensor import block_of
from eindecomp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Generator

    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]

_SLAB = 1 << 26  # bytes that are copied at a time


class Stored(Protocol):
    """An array in a file, by its place; it is small, and is sent to workers."""

    def open(self) -> Any:
        """The array, of which nothing is read until it is sliced."""
        ...


@dataclass(frozen=True, slots=True)
class MappedArray:
    """An array whose elements lie in a file as they would in memory."""

    path: str
    shape: tuple[int, ...]
    dtype: DType
    offset: int
    """The place of the first element in the file."""
    strides: tuple[int, ...]

    def open(self) -> Array:
        """The array, mapped into memory."""
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        with _reading(self.path):
            whole = np.memmap(self.path, np.uint8, "r")
            return np.ndarray(self.shape, self.dtype, whole, self.offset, self.strides)


@dataclass(frozen=True, slots=True)
class ZarrArray:
    """An array of a zarr store in a folder."""

    folder: str
    name: str

    def open(self) -> Any:
        """The array, of which chunks are read as they are asked for."""
        import zarr

        with _reading(f"{self.folder}/{self.name}"):
            return zarr.open_array(self.folder, path=self.name, mode="r")


@contextmanager
def _reading(path: str) -> Generator[None]:
    """Says where a file that cannot be read is missing."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read on {socket.gethostname()}: {error}; the files of "
            "inputs must be where every node can read them while their results are used"
        ) from error


def where_it_lies(given: Any) -> Stored | None:
    """The file in which an array lies already, if it does."""
    if isinstance(given, np.ndarray):
        return _mapped(given)  # pyright: ignore[reportUnknownArgumentType]
    root = getattr(getattr(given, "store", None), "root", None)
    if type(given).__module__.partition(".")[0] == "zarr" and isinstance(root, Path):
        return ZarrArray(str(root.resolve()), str(given.path))
    return None


def _mapped(array: Array) -> MappedArray | None:
    """Where a view of a memory-mapped file lies in it."""
    first: Any = array
    while isinstance(first, np.ndarray) and isinstance(first.base, np.ndarray):
        first = first.base
    if not isinstance(first, np.memmap) or first.filename is None or first.mode == "c":
        return None
    begin = first.__array_interface__["data"][0] - first.offset
    offset = array.__array_interface__["data"][0] - begin
    path = str(Path(first.filename).resolve())
    return MappedArray(path, array.shape, array.dtype, offset, array.strides)


class KeptFile:
    """A file that is there for as long as somebody has this."""

    def __init__(self, folder: Folder, path: Path, size: int) -> None:
        self.folder, self.size = folder, size  # the folder goes with the last of its files
        self._delete = weakref.finalize(self, path.unlink, missing_ok=True)


class Folder:
    """A folder of the engine's own, in which arrays of the caller's are written for the workers."""

    def __init__(self, above: str | None) -> None:
        try:
            made = tempfile.mkdtemp(prefix="eindecomp-", dir=above)
        except OSError as error:
            raise InputError(f"directory: {above!r} cannot be written to: {error}") from None
        self.path = Path(made).resolve()
        self._numbers = count()
        self._remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def write(self, array: Any) -> tuple[MappedArray, KeptFile]:
        """Write an array, or what gives arrays for slices, a few rows at a time."""
        shape, dtype = tuple(int(size) for size in array.shape), np.dtype(array.dtype)
        path = self.path / f"{next(self._numbers)}.array"
        strides = tuple(dtype.itemsize * prod(shape[k + 1 :]) for k in range(len(shape)))
        rows, size = shape[0] if shape else 1, dtype.itemsize * prod(shape)
        kept = KeptFile(self, path, size)
        step = max(1, _SLAB * rows // size) if size else 1
        with path.open("wb") as opened:
            for low in range(0, rows if size else 0, step):
                sides = ((low, min(low + step, rows)), *((0, n) for n in shape[1:]))
                block = block_of(array, sides if shape else ())
                opened.write(block.reshape(-1).view(np.uint8).data)
        return MappedArray(str(path), shape, dtype, 0, strides), kept

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        self._remove()

"""Tiles in files: which bytes of a file a tile is, and reading them into memory of the host."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.errors import RunError
from eindecomp.kernels.torch.library import TorchLibrary

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from eindecomp.engines.torch.mapped_memory import FilePlace, OpenFile

    Array = np.ndarray[Any, Any]

_READERS = 8  # a disk is at its best when it is asked for several things at once
_SHARE = 4 << 20  # bytes below which one reader is enough
_RUN = 4 << 10  # bytes in a row below which asking for each takes longer than copying them


@dataclass(frozen=True)
class FileTile:
    """A tile whose elements lie in a file, in any order of its dimensions."""

    file: OpenFile
    offset: int
    """Of its first element."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In bytes."""
    itemsize: int
    dtype: torch.dtype
    mapped: torch.Tensor = field(compare=False, repr=False)
    """The same in mapped memory, of which every access may have to wait for the disk."""

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return prod(self.shape) * self.itemsize

    def read(self, start: int, target: torch.Tensor) -> None:
        """Fill some bytes of the host with those of the tile from `start` on, row by row."""
        into = target.numpy()
        share = max(_SHARE, -(-len(into) // _READERS // 512) * 512)
        if len(into) <= share:
            self._read(start, into)
            return
        begun = [
            _readers().submit(self._read, start + at, into[at : at + share])
            for at in range(0, len(into), share)
        ]
        for each in begun:
            each.result()

    def _read(self, start: int, into: Array) -> None:
        if self._run < min(_RUN, self.nbytes):
            self._copy(start, into)
            return
        done = 0
        for offset, size in self._runs(start, start + len(into)):
            self._read_run(offset, into[done : done + size])
            done += size

    def _read_run(self, offset: int, into: Array) -> None:
        left = into.data
        while left:
            count = os.preadv(self.file.number, [left], offset)
            if not count:
                raise RunError(f"{self.file.path} has become shorter: it ends at byte {offset}")
            left, offset = left[count:], offset + count

    def _copy(self, start: int, into: Array) -> None:
        """Of bytes that lie scattered, by the mapped memory: their pages are read as they come."""
        flat: Any = TorchLibrary("cpu").to_numpy(self.mapped).flat
        first = start // self.itemsize
        elements = flat[first : first + len(into) // self.itemsize]
        into[:] = elements.view(np.uint8)

    @property
    def _inner(self) -> int:
        """How many of the last dimensions lie in the file as in memory, without gaps."""
        size, count = self.itemsize, 0
        for side, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if side > 1 and stride != size:
                break
            size, count = size * side, count + 1
        return count

    @property
    def _run(self) -> int:
        """The bytes that follow each other in the file."""
        return prod(self.shape[len(self.shape) - self._inner :]) * self.itemsize

    def _runs(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Offsets and sizes of the parts of the file that hold these bytes of the tile."""
        run, outer = self._run, len(self.shape) - self._inner
        numbers = np.arange(start // run, -(-stop // run))
        offsets = np.full(len(numbers), self.offset)
        places = np.unravel_index(numbers, self.shape[:outer]) if outer else ()
        for place, stride in zip(places, self.strides[:outer], strict=True):
            offsets += place * stride
        for number, offset in zip(numbers.tolist(), offsets.tolist(), strict=True):
            low, high = max(start, number * run), min(stop, (number + 1) * run)
            yield offset + low - number * run, high - low


@cache
def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_READERS, "read tiles")


def note_file(tensor: torch.Tensor, place: FilePlace | None) -> torch.Tensor:
    """Remember from which file a tensor's memory is mapped."""
    setattr(tensor, "file_place", place)  # noqa: B010 - it lasts as long as the tensor
    return tensor


def file_of(tensor: torch.Tensor) -> FilePlace | None:
    """From which file a tensor's memory is mapped, if that was noted."""
    return getattr(tensor, "file_place", None)


def file_tile(tensor: torch.Tensor) -> FileTile | None:
    """The part of a file that a tensor is mapped from, if that was noted."""
    place = file_of(tensor)
    if place is None:
        return None
    item = tensor.element_size()
    return FileTile(
        place.file,
        place.offset + tensor.data_ptr() - place.address,
        tuple(tensor.shape),
        tuple(stride * item for stride in tensor.stride()),
        item,
        tensor.dtype,
        tensor,
    )

"""The disk as the last tier: tiles in files, which of them the host keeps, how others are read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary, finalize

import numpy as np

from eindecomp.engines.resources import available
from eindecomp.engines.torch.paged_memory import HostMemory, typed
from eindecomp.errors import RunError
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.lang.dtypes import Array

if TYPE_CHECKING:
    import torch


_MAPS, _DETAILS = Path("/proc/self/maps"), Path("/proc/self/smaps")


@dataclass(frozen=True, eq=True)
class OpenFile:
    """A file that is open for reading as long as this lives."""

    path: str
    version: tuple[int, int, int]
    """Its number on its disk, its size, and when it was last changed."""
    number: int = field(compare=False)

    def __post_init__(self) -> None:
        finalize(self, os.close, self.number)


class FilePlace(NamedTuple):
    """An address of mapped memory, and the byte of the file that lies there."""

    file: OpenFile
    address: int
    offset: int


class _Area(NamedTuple):
    """A range of addresses that is mapped as a whole."""

    start: int
    end: int
    rights: str
    offset: int
    inode: int
    path: str


_OPEN: WeakValueDictionary[tuple[str, tuple[int, int, int]], OpenFile] = WeakValueDictionary()


def mapped_from(tensor: torch.Tensor) -> FilePlace | None:
    """Where in a file a tensor of the host begins; None unless all of it is as in that file."""
    sides = zip(tensor.shape, tensor.stride(), strict=True)
    count = 1 + sum((size - 1) * step for size, step in sides) if tensor.numel() else 0
    first, last = tensor.data_ptr(), tensor.data_ptr() + count * tensor.element_size()
    area = next((area for area in _areas() if area.start <= first < last <= area.end), None)
    if area is None or not area.path.startswith("/"):
        return None
    if area.rights.startswith("rw") and area.rights.endswith("p") and _was_changed(area):
        return None
    file = _opened(area.path, area.inode)
    if file is None or os.fstat(file.number).st_size < area.offset + last - area.start:
        return None
    return FilePlace(file, first, area.offset + first - area.start)


def _areas() -> Iterator[_Area]:
    with suppress(OSError):
        for line in _MAPS.read_text().splitlines():
            span, rights, offset, _, inode, *path = line.split(maxsplit=5)
            start, end = (int(each, 16) for each in span.split("-"))
            yield _Area(start, end, rights, int(offset, 16), int(inode), "".join(path))


def _was_changed(area: _Area) -> bool:
    """Whether some of a private mapping was written to, and is no longer as in its file."""
    own = False
    with suppress(OSError), _DETAILS.open() as details:
        for line in details:
            word, _, rest = line.partition(" ")
            if word == f"{area.start:08x}-{area.end:08x}":
                own = True
            elif own and word in ("Anonymous:", "Swap:") and int(rest.split()[0]):
                return True
            elif own and word == "VmFlags:":
                return False
    return True


def _opened(path: str, inode: int) -> OpenFile | None:
    """The file of a path, if it is still the one that was mapped."""
    with suppress(OSError):
        known = _OPEN.get((path, _version(os.stat(path))))
        if known is not None and known.version[0] == inode:
            return known
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        told = os.fstat(number)
        file = OpenFile(path, _version(told), number)
        if stat.S_ISREG(told.st_mode) and told.st_ino == inode:
            _OPEN[path, file.version] = file
            return file
    return None


def _version(told: os.stat_result) -> tuple[int, int, int]:
    return told.st_ino, told.st_size, told.st_mtime_ns


_READERS = 8  # a disk is at its best when it is asked for several things at once
_SHARE = 4 << 20  # bytes below which one reader is enough


@dataclass(frozen=True)
class FileTile:
    """A tile whose elements lie in a file, in any order of its dimensions."""

    file: OpenFile
    offset: int
    """Of its first element."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    mapped: torch.Tensor = field(compare=False, repr=False)
    """The tile in mapped memory, where every access may have to wait for the disk."""

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
        if not self.mapped.is_contiguous():  # its pages are read as they come
            flat: Any = TorchLibrary("cpu").to_numpy(self.mapped).flat
            first, size = start // self.dtype.itemsize, len(into) // self.dtype.itemsize
            into[:] = flat[first : first + size].view(np.uint8)
            return
        left, offset = into.data, self.offset + start
        while left:
            count = os.preadv(self.file.number, [left], offset)
            if not count:
                raise RunError(f"{self.file.path} has become shorter: it ends at byte {offset}")
            left, offset = left[count:], offset + count


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
    offset = place.offset + tensor.data_ptr() - place.address
    shape, strides = tuple(tensor.shape), tensor.stride()
    return FileTile(place.file, offset, shape, strides, tensor.dtype, tensor)


_OF_MEMORY = 0.75  # of the memory that is available: the rest is for results, and for others
_SAMPLE = 32 << 20  # bytes of one request when the disk is measured
_SAMPLES = 8


class HostCopies:
    """Tiles of files that the host keeps, up to a limit; they go when nobody uses them."""

    def __init__(self, host: HostMemory, limit: int | None) -> None:
        """Without a limit, three quarters of the memory that is available are taken."""
        self.host, self._limit = host, limit
        self._kept: WeakValueDictionary[FileTile, torch.Tensor] = WeakValueDictionary()

    @property
    def room(self) -> int:
        """How many bytes more may be kept."""
        taken = sum(copy.nbytes for copy in self._kept.values())
        if self._limit is None:
            self._limit = int(_OF_MEMORY * (available() or 0)) + taken
        return max(0, self._limit - taken)

    def chosen(self, tiles: Iterable[FileTile]) -> set[FileTile]:
        """As many tiles as there is room for, the first ones first."""
        chosen: set[FileTile] = set()
        room = self.room
        for tile in tiles:
            size = 0 if tile in self._kept or tile in chosen else tile.mapped.nbytes
            if size <= room:
                room -= size
                chosen.add(tile)
        return chosen

    def copy(self, tile: FileTile) -> torch.Tensor:
        """A tile in the host's memory, read once as long as somebody has it."""
        known = self._kept.get(tile)
        if known is None:
            memory = self.host.empty(tile.mapped.nbytes)
            tile.read(0, memory)
            known = self._kept[tile] = typed(memory, tile.mapped.dtype, tile.shape)
        return known


def measure_disk(tiles: Sequence[FileTile], host: HostMemory) -> float:
    """How many bytes of these tiles can be read in a second, by some of them."""
    step = max(1, len(tiles) // _SAMPLES)
    memory = host.empty(_SAMPLE)
    seconds, count = 0.0, 0
    for tile in tiles[::step][:_SAMPLES]:
        part = memory[: min(_SAMPLE, tile.mapped.nbytes)]
        begin = perf_counter()
        tile.read(0, part)
        seconds += perf_counter() - begin
        count += part.nbytes
    return max(1.0, count / max(seconds, 1e-9))

"""Which file a tensor's memory is mapped from, as the system tells it (on Linux)."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary, finalize

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """The byte of a file that some address of memory is mapped from, and all around it."""

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
    first, last = tensor.data_ptr(), tensor.data_ptr() + _extent(tensor)
    area = next((area for area in _areas() if area.start <= first < last <= area.end), None)
    if area is None or not area.path.startswith("/"):
        return None
    if area.rights.startswith("rw") and area.rights.endswith("p") and _was_changed(area):
        return None
    file = _opened(area.path, area.inode)
    if file is None or os.fstat(file.number).st_size < area.offset + last - area.start:
        return None
    return FilePlace(file, first, area.offset + first - area.start)


def _extent(tensor: torch.Tensor) -> int:
    """The bytes from a tensor's first element to the end of its last."""
    if not tensor.numel():
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((size - 1) * step for size, step in steps)) * tensor.element_size()


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
        found = OpenFile(path, _version(told), number)
        if stat.S_ISREG(told.st_mode) and told.st_ino == inode:
            _OPEN[path, found.version] = found
            return found
    return None


def _version(told: os.stat_result) -> tuple[int, int, int]:
    return told.st_ino, told.st_size, told.st_mtime_ns

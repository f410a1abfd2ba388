"""Tiles that are NumPy's arrays, in memory that ranks of the same machine can map.

An all-to-all of blocks that do not lie in one piece would copy each three times: into one piece,
across, and into place. So what is computed to be sent all-to-all is made in memory files, as Linux
calls memory that has a descriptor but no name. A rank that is told which file holds an array, and
of which process, reads its elements as if they were its own, which is one copy.
"""

from __future__ import annotations

import mmap
import os
import socket
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import finalize

import numpy as np

from eindecomp.engines.spare import Spare
from eindecomp.engines.tensor import as_numpy, block_of
from eindecomp.graph.arrays import to_stored
from eindecomp.kernels.library import library_of
from eindecomp.kernels.tile_arrays import address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.engines.spmd.protocols import Transport
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.boxes import Box

    Array = np.ndarray[Any, Any]


class HostArrays:
    """NumPy's arrays, which ranks of one machine can read where they are."""

    kind = "numpy"
    stored = staticmethod(to_stored)

    def __init__(self, transport: Transport) -> None:
        self.library = library_of("numpy")
        self.carrier = transport

    def block(self, given: Any, box: Box, *, copy: bool) -> Array:
        """A block of what was given; one of an array is that itself if it lies in one piece."""
        if copy or type(given) is not np.ndarray:
            return block_of(given, box)
        where = tuple(slice(low, high) for low, high in box)
        return np.asarray(given[where], order="C")

    @staticmethod
    def taken(block: Any) -> Array:
        """A block of a tensor, which may be on a device."""
        return block if type(block) is np.ndarray else as_numpy(block)

    @staticmethod
    def is_in_one_piece(array: Array) -> bool:
        """Whether an array lies row by row, without gaps."""
        return array.flags.c_contiguous

    @staticmethod
    def flat(count: int, like: Array) -> Array:
        """A new flat array of another's type, with anything in it."""
        return np.empty(count, like.dtype)

    def sources(self) -> tuple[Spare, Spare]:
        """Large arrays are used again, those in memory files too."""
        return Spare(), SharedSpare()

    def neighbours(self) -> dict[int, int]:
        """The ranks of this machine, if the system lets them map each other's memory files."""
        name = self.carrier.name
        if name not in _NEIGHBOURS:
            _NEIGHBOURS[name] = _find_neighbours(self.carrier)
        return _NEIGHBOURS[name]

    def settle(self) -> None:
        """Nothing is ever left to do."""


# Arrays in memory files


class MemoryFile(NamedTuple):
    """What other processes find an array by."""

    descriptor: int
    serial: int
    """Descriptors are used again, serial numbers are not."""


_SERIALS = count(1)
_FILES: dict[int, MemoryFile] = {}
"""By the address of the array."""


def shared_array(shape: Sequence[int], dtype: DType) -> Array:
    """A new array, of any contents, that others can map as long as it lives."""
    size = max(prod(shape) * dtype.itemsize, 1)
    descriptor = os.memfd_create("eindecomp")  # pyright: ignore[reportAttributeAccessIssue]
    try:
        os.ftruncate(descriptor, size)
        array = np.ndarray(tuple(shape), dtype, mmap.mmap(descriptor, size))
    except BaseException:
        os.close(descriptor)
        raise
    place = address(array)
    _FILES[place] = MemoryFile(descriptor, next(_SERIALS))
    finalize(array, _forget, place, descriptor)
    return array


def _forget(place: int, descriptor: int) -> None:
    del _FILES[place]
    os.close(descriptor)


def file_of(array: Array) -> MemoryFile | None:
    """What others find an array by; None if it is in no memory file."""
    return _FILES.get(address(array))


def mapped(process: int, file: MemoryFile, shape: Sequence[int], dtype: DType) -> Array:
    """Another process's array, to be read."""
    size = max(prod(shape) * dtype.itemsize, 1)
    descriptor = os.open(f"/proc/{process}/fd/{file.descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        memory = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)
    return np.ndarray(tuple(shape), dtype, memory)


class SharedSpare(Spare):
    """Shared arrays that are of no more use."""

    def _new(self, shape: tuple[int, ...], dtype: DType) -> Array:
        return shared_array(shape, dtype)

    def _is_own(self, array: Array) -> bool:
        return file_of(array) is not None


# Who can map whose files

_NEIGHBOURS: dict[str, dict[int, int]] = {}


def _find_neighbours(transport: Transport) -> dict[int, int]:
    """Ranks tell each other who they are, and whether they can map what the others have."""
    host, rank = socket.gethostname(), transport.rank
    probe = shared_array((1,), np.dtype(np.int64)) if hasattr(os, "memfd_create") else None
    file = None if probe is None else file_of(probe)
    if probe is not None:
        probe[0] = _mark(rank)
    own = f"{os.getpid()} {-1 if file is None else file.descriptor} {host}"
    told = [text.decode().split(" ", 2) for text in transport.gather_bytes(own.encode())]
    here = {other: int(each[0]) for other, each in enumerate(told) if each[2] == host}
    can_map = all(_can_map(process, int(told[k][1]), k) for k, process in here.items())
    fine = transport.gather_bytes(b"yes" if can_map else b"no")  # by then all have looked
    return here if all(fine[other] == b"yes" for other in here) else {}


def _can_map(process: int, descriptor: int, rank: int) -> bool:
    """Whether a rank's probe can be mapped, and is that of this rank."""
    if descriptor < 0:
        return False
    try:
        found = mapped(process, MemoryFile(descriptor, 0), (1,), np.dtype(np.int64))
    except OSError:
        return False
    return int(found[0]) == _mark(rank)


def _mark(rank: int) -> int:
    return 0x45696E446563 + rank

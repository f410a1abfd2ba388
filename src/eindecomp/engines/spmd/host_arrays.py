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
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from math import prod
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np

from eindecomp.engines.resources import Spare
from eindecomp.engines.spmd.exchange import (
    Carrier,
    PeerSpans,
    Pending,
    RankArrays,
    Transport,
    Where,
)
from eindecomp.engines.tensor import as_numpy, block_of
from eindecomp.graph.arrays import to_stored
from eindecomp.kernels.library import KernelLibrary, library_of
from eindecomp.kernels.tile_arrays import address
from eindecomp.lang.dtypes import Array, DType
from eindecomp.layout.boxes import Box


class HostArrays:
    """NumPy's arrays, which ranks of one machine can read where they are."""

    kind = "numpy"
    stored = staticmethod(to_stored)

    def __init__(self, transport: Transport) -> None:
        self.library: KernelLibrary = library_of("numpy")
        self.carrier: Carrier = transport
        self._transport = transport
        self.let_go()

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

    def make(self, shape: tuple[int, ...], dtype: DType, is_shared: bool) -> Array:
        """An array with anything in it, made of one that was given if there is one like it."""
        return self._spare[is_shared].make(shape, dtype)

    def give(self, array: Array) -> None:
        """Keep a large array for the next one like it."""
        for spare in self._spare:
            spare.give(array)  # each knows its own

    def let_go(self) -> None:
        """Keep no array any longer."""
        self._spare = Spare(), SharedSpare()

    def neighbours(self) -> dict[int, int]:
        """The ranks of this machine, if the system lets them map each other's memory files."""
        name = self._transport.name
        if name not in _NEIGHBOURS:
            _NEIGHBOURS[name] = _find_neighbours(self._transport)
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
_MARK = 0x45696E446563


def _find_neighbours(transport: Transport) -> dict[int, int]:
    """The ranks of this machine, by process, if each can map the memory files of all others."""
    host, rank = socket.gethostname(), transport.rank
    probe = shared_array((1,), np.dtype(np.int64)) if hasattr(os, "memfd_create") else None
    file = None if probe is None else file_of(probe)
    if probe is not None:
        probe[0] = _MARK + rank
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
        probe = mapped(process, MemoryFile(descriptor, 0), (1,), np.dtype(np.int64))
    except OSError:
        return False
    return int(probe[0]) == _MARK + rank


# Blocks that are read where they lie


@dataclass(frozen=True, slots=True)
class MappedBlock:
    """A block of a peer's array, and where it belongs in this rank's."""

    peer: int
    process: int
    shape: tuple[int, ...]
    """That of the peer's array."""
    wanted: Where
    """Where in it the block is."""
    place: Where
    """Where in this rank's array it belongs."""


@dataclass(frozen=True, slots=True)
class MappedExchange:
    """An exchange by which ranks of one machine read what they want of each other.

    Each tells its readers which memory file holds its array, reads what it wants of others, and
    waits until its own readers are done.
    """

    reads: tuple[MappedBlock, ...]
    readers: tuple[int, ...]
    """The ranks that read of this one."""
    kept: tuple[tuple[Where, Where], ...]
    tag: int
    maps: dict[int, tuple[int, Array]] = field(default_factory=dict[int, "tuple[int, Array]"])
    """Of each peer the array that was mapped last, and the serial number of its file."""

    def start(self, arrays: RankArrays, source: Array, target: Array) -> MappedReads:
        """Tell the others where the source is."""
        copy = arrays.library.copy
        file = file_of(source) if arrays.is_in_one_piece(source) else None
        shared = source
        if file is None:  # it was made elsewhere, as from a checkpoint
            shared = shared_array(source.shape, source.dtype)
            copy(shared, source)
            file = file_of(shared)
        files = np.zeros((len(self.reads), 2), np.int64)
        pending = self.tell(arrays, np.array(file), files)
        for here, there in self.kept:
            copy(target[there], source[here])
        return MappedReads(self, arrays, pending, files, target, shared)

    def tell(self, arrays: RankArrays, own: Array, told: Array, *, back: bool = False) -> Pending:
        """Tell readers some numbers; a row comes from each who is read of. Or `back` to those."""
        read_of, size = [each.peer for each in self.reads], len(own)
        to, of = (read_of, self.readers) if back else (self.readers, read_of)
        sends = PeerSpans(own, dict.fromkeys(to, (0, size)))
        spans = {peer: (size * k, size) for k, peer in enumerate(of)}
        return arrays.carrier.exchange(sends, PeerSpans(told.reshape(-1), spans), self.tag)

    def theirs(self, read: MappedBlock, file: MemoryFile, dtype: DType) -> Array:
        """The array of a peer."""
        serial, array = self.maps.get(read.peer, (0, None))
        if array is None or serial != file.serial:
            array = mapped(read.process, file, read.shape, dtype)
            self.maps[read.peer] = file.serial, array
        return array


@dataclass(frozen=True, slots=True)
class MappedReads:
    """Reading that can begin when peers have told where their arrays are."""

    exchange: MappedExchange
    arrays: RankArrays
    pending: Pending
    files: Array
    target: Array
    source: Array
    """Held until all have read it."""

    def finish(self) -> int:
        """Read, and wait for those who read of this rank; the bytes that were read."""
        self.pending.wait()
        came = 0
        for each, told in zip(self.exchange.reads, self.files, strict=True):
            theirs = self.exchange.theirs(each, MemoryFile(*told.tolist()), self.target.dtype)
            self.arrays.library.copy(self.target[each.place], theirs[each.wanted])
            came += theirs[each.wanted].nbytes
        done = np.zeros((len(self.exchange.readers), 1), np.uint8)
        self.exchange.tell(self.arrays, np.zeros(1, np.uint8), done, back=True).wait()
        return came

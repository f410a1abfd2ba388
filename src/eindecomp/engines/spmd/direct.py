"""Reading blocks of ranks on the same machine out of their memory, where they lie.

An all-to-all of blocks that do not lie in one piece would copy each three times: into one piece,
across, and into place. Linux lets a process read another's memory if both belong to one user, which
is one copy: it maps what a rank has made for it, and asks the system for pieces of any other array,
row by row in one call. Ranks tell each other where their arrays are, read, and wait until all have
read.
"""

from __future__ import annotations

import ctypes
import os
import socket
from dataclasses import dataclass, field
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.spmd.shared_arrays import NO_FILE, MemoryFile, file_of, mapped
from eindecomp.errors import RunError
from eindecomp.kernels.address import address
from eindecomp.layout.boxes import meet, shape_of, volume, within

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.engines.spmd.rank_arrays import RankArrays
    from eindecomp.engines.spmd.transport import Group, Pending, Transport
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.boxes import Box

    Array = np.ndarray[Any, Any]
    Copy = Callable[[Array, Array], None]
    Where = tuple[slice, ...]

LEAST = 2048
"""Bytes in one piece from which on asking the system for them is faster than gathering first."""
_AT_ONCE = 1024
"""Pieces that Linux reads in one call."""


def reader() -> Callable[..., int] | None:
    """Linux's call; None where there is none."""
    found = getattr(ctypes.CDLL(None, use_errno=True), "process_vm_readv", None)
    if found is not None:
        found.restype = ctypes.c_ssize_t
        number = ctypes.c_ulong
        found.argtypes = (ctypes.c_int, ctypes.c_void_p, number, ctypes.c_void_p, number, number)
    return found


_READ = reader()


@dataclass(frozen=True, slots=True)
class Pieces:
    """A block as pieces of one length: where in its array each begins, in bytes."""

    starts: Array
    length: int

    def cut(self, length: int) -> Pieces:
        """The same in shorter pieces, which divide the length."""
        inner = np.arange(0, self.length, length)
        return Pieces(np.add.outer(self.starts, inner).reshape(-1), length)


def pieces_of(shape: Sequence[int], where: Where, item: int) -> Pieces:
    """The pieces of a block of an array that lies in one piece itself.

    >>> pieces_of((4, 6), (slice(1, 3), slice(2, 5)), 4)
    Pieces(starts=array([32, 56]), length=12)
    """
    sides = [range(*part.indices(size)) for part, size in zip(where, shape, strict=True)]
    steps = [item * prod(shape[k + 1 :]) for k in range(len(shape))]
    length, outer = item, len(shape)
    while outer and (outer == len(shape) or len(sides[outer]) == shape[outer]):
        outer -= 1
        length = len(sides[outer]) * steps[outer]
    starts = np.array([side.start * step for side, step in zip(sides, steps, strict=True)]).sum()
    found = np.array([starts])
    for side, step in zip(sides[:outer], steps[:outer], strict=True):
        found = np.add.outer(found, step * np.arange(len(side))).reshape(-1)
    return Pieces(found, length)


@dataclass(frozen=True, slots=True)
class BlockRead:
    """A block of a peer's array, and where it belongs in this rank's."""

    process: int
    member: int
    """Which member of the group the peer is."""
    there: Pieces
    here: Pieces
    shape: tuple[int, ...]
    """That of the peer's array."""
    wanted: Where
    """Where in it the block is."""
    place: Where
    """Where in this rank's array it belongs."""


@dataclass(frozen=True, slots=True)
class DirectExchange:
    """An all-to-all by which every member of a group reads what it wants of the others."""

    group: Group
    reads: tuple[BlockRead, ...]
    kept: tuple[tuple[Where, Where], ...]
    maps: dict[int, tuple[int, Array]] = field(default_factory=dict[int, "tuple[int, Array]"])
    """Of each member the array that was mapped last, and the serial number of its file."""

    def start(self, arrays: RankArrays, source: Array, target: Array) -> DirectReads:
        """Tell the others where the source is."""
        copy = arrays.library.copy
        places = np.zeros((len(self.group.ranks), 3), np.int64)
        own = np.array([address(source), *file_of(source)])
        pending = self.group.all_gather(own, places.reshape(-1), [3] * len(places))
        for here, there in self.kept:
            copy(target[there], source[here])
        return DirectReads(self, pending, places, target, source, copy)

    def mapped(self, read: BlockRead, file: MemoryFile, dtype: DType) -> Array:
        """The array of a peer."""
        serial, array = self.maps.get(read.member, (0, None))
        if array is None or serial != file.serial:
            array = mapped(read.process, file, read.shape, dtype)
            self.maps[read.member] = file.serial, array
        return array


@dataclass(frozen=True, slots=True)
class DirectReads:
    """Reading that can begin when all have told where their arrays are."""

    exchange: DirectExchange
    pending: Pending
    places: Array
    target: Array
    source: Array
    """Held until all have read it."""
    copy: Copy

    def finish(self) -> None:
        """Read, and wait for all others to have read."""
        self.pending.wait()
        target, exchange = self.target, self.exchange
        for each in exchange.reads:
            place, *found = self.places[each.member].tolist()
            file = MemoryFile(*found)
            if file == NO_FILE:
                _read(each.process, place, each.there, address(target), each.here)
            else:
                theirs = exchange.mapped(each, file, target.dtype)
                self.copy(target[each.place], theirs[each.wanted])
        done = np.zeros(len(self.places), np.uint8)
        self.exchange.group.all_gather(done[:1].copy(), done, [1] * len(done)).wait()


def is_worth_it(held: Sequence[Box], wanted: Sequence[Box], item: int, *, shared: bool) -> bool:
    """Whether blocks are in pieces long enough for all members, and not all in one already.

    Pieces of `shared` arrays may be of any length.
    """
    lengths = [
        (_length(box, common, item), _length(target, common, item), item * volume(common))
        for one, box in enumerate(held)
        for other, target in enumerate(wanted)
        if one != other and (common := meet(box, target)) is not None
    ]
    is_scattered = any(min(there, here) < whole for there, here, whole in lengths)
    least = 0 if shared else LEAST
    return is_scattered and all(gcd(there, here) >= least for there, here, _ in lengths)


def block_reads(
    held: Sequence[Box], wanted: Box, own: int, processes: Sequence[int], item: int
) -> tuple[BlockRead, ...]:
    """What a member reads of the boxes of all; `own` is which of them it is itself."""
    found: list[BlockRead] = []
    for member, box in enumerate(held):
        shared = meet(box, wanted)
        if member != own and shared is not None:
            shape, where = shape_of(box), (within(shared, box), within(shared, wanted))
            there = pieces_of(shape, where[0], item)
            here = pieces_of(shape_of(wanted), where[1], item)
            length = gcd(there.length, here.length)
            pieces = there.cut(length), here.cut(length)
            found.append(BlockRead(processes[member], member, *pieces, shape, *where))
    return tuple(found)


def _length(box: Box, block: Box, item: int) -> int:
    """The bytes of a block that lie in one piece in an array that holds a box."""
    length = item
    for (low, high), (first, last) in zip(reversed(block), reversed(box), strict=True):
        length *= high - low
        if (low, high) != (first, last):
            break
    return length


def _read(process: int, place: int, there: Pieces, start: int, here: Pieces) -> None:
    """Copy pieces of a process's memory."""
    if _READ is None:
        raise RunError("the memory of other ranks cannot be read on this system")
    local, remote = _vectors(start, here), _vectors(place, there)
    for first in range(0, len(local), _AT_ONCE):
        parts = local[first : first + _AT_ONCE], remote[first : first + _AT_ONCE]
        count, wanted = len(parts[0]), len(parts[0]) * here.length
        got = _READ(process, parts[0].ctypes.data, count, parts[1].ctypes.data, count, 0)
        if got != wanted:
            why = os.strerror(ctypes.get_errno()) if got < 0 else f"{got} of {wanted} bytes"
            raise RunError(f"the memory of process {process} could not be read: {why}")


def _vectors(start: int, pieces: Pieces) -> Array:
    """Addresses and lengths as Linux wants them."""
    found = np.empty((len(pieces.starts), 2), np.int64)
    found[:, 0] = start + pieces.starts
    found[:, 1] = pieces.length
    return found


def neighbours_of(transport: Transport) -> dict[int, int]:
    """The processes of all ranks whose memory every rank of this machine can read."""
    if transport.name not in _NEIGHBOURS:
        _NEIGHBOURS[transport.name] = _find_neighbours(transport)
    return _NEIGHBOURS[transport.name]


_NEIGHBOURS: dict[str, dict[int, int]] = {}
_PROBE = np.zeros(1, np.int64)


def _find_neighbours(transport: Transport) -> dict[int, int]:
    """Ranks tell each other who they are, and whom they can read."""
    _PROBE[0] = _mark(transport.rank)
    own = f"{os.getpid()} {address(_PROBE)} {socket.gethostname()}"
    told = [text.decode().split(" ", 2) for text in transport.gather_bytes(own.encode())]
    here = [rank for rank, (_, _, host) in enumerate(told) if host == socket.gethostname()]
    is_fine = all(_can_read(int(told[rank][0]), int(told[rank][1]), rank) for rank in here)
    fine = transport.gather_bytes(b"yes" if is_fine else b"no")
    if any(fine[rank] != b"yes" for rank in here):
        return {}
    return {rank: int(told[rank][0]) for rank in here}


def _can_read(process: int, place: int, rank: int) -> bool:
    """Whether a rank's memory can be read, and is that of this rank."""
    if _READ is None:
        return False
    found = np.zeros(1, np.int64)
    vectors = np.array([[address(found), 8]]), np.array([[place, 8]])
    got = _READ(process, vectors[0].ctypes.data, 1, vectors[1].ctypes.data, 1, 0)
    return got == 8 and int(found[0]) == _mark(rank)


def _mark(rank: int) -> int:
    return 0x45696E446563 + rank

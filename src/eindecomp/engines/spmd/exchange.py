"""What one rank sends and receives in a step, and in which memory.

Blocks that lie in one piece are sent from and received into the tiles themselves; others go
through memory of their own, or are read where they lie by ranks of the same machine. What a rank
has of its own stays on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.spmd.host_arrays import MemoryFile, file_of, mapped, shared_array
from eindecomp.engines.spmd.protocols import PeerSpans
from eindecomp.layout.boxes import shape_of, volume, within

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.engines.spmd.protocols import Pending, RankArrays, Span
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.boxes import Box
    from eindecomp.tra.program.device_row import Exchange

    Array = Any
    Where = tuple[slice, ...]
    Copy = Callable[[Array, Array], None]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of an array: one for each peer, to which it goes or from which it comes."""

    where: tuple[Where, ...]
    shapes: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...]
    """Elements of each; nothing moves where there are none."""
    apart: tuple[Span, ...]
    """Where they are in memory of their own, one after another."""
    size: int
    """The elements of that memory."""
    in_place: tuple[Span, ...] | None
    """Where they are in an array in one piece; None if some do not lie in one piece there."""

    def spans(self, array: Array, arrays: RankArrays) -> tuple[Span, ...] | None:
        """Where in the flat array they are; None if some do not lie in one piece."""
        return self.in_place if arrays.is_in_one_piece(array) else None

    def copy(self, array: Array, flat: Array, copy: Copy, *, into_flat: bool) -> None:
        """Copy the blocks of an array to memory of their own, or back."""
        by_span = dict(zip(self.apart, zip(self.where, self.shapes, strict=True), strict=True))
        for (start, count), (where, shape) in by_span.items():
            if count:
                own, other = array[where], flat[start : start + count].reshape(shape)
                copy(*((other, own) if into_flat else (own, other)))


def blocks_of(boxes: Sequence[Box | None], held: Box) -> Blocks:
    """The places of boxes in an array that holds `held`."""
    known = [None if box is None or not volume(box) else box for box in boxes]
    where = tuple(() if box is None else within(box, held) for box in known)
    counts = tuple(0 if box is None else volume(box) for box in known)
    # What several peers get, as in an all-gather, is put in one place.
    each = dict(zip(known, counts, strict=True))
    starts = dict(zip(each, accumulate(each.values(), initial=0), strict=False))
    return Blocks(
        where,
        tuple(() if box is None else shape_of(box) for box in known),
        counts,
        tuple((starts[box], count) for box, count in zip(known, counts, strict=True)),
        sum(each.values()),
        _in_place(shape_of(held), where, counts),
    )


def _in_place(
    shape: tuple[int, ...], where: Sequence[Where], counts: Sequence[int]
) -> tuple[Span, ...] | None:
    found: list[Span] = []
    for each, count in zip(where, counts, strict=True):
        start, is_inner_whole = 0, True
        for k in reversed(range(len(shape) if count else 0)):
            length = each[k].stop - each[k].start
            if length > 1 and not is_inner_whole:
                return None
            is_inner_whole = is_inner_whole and length == shape[k]
            start += each[k].start * prod(shape[k + 1 :])
        found.append((start, count))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class BlockExchange:
    """Blocks to peers and from them, which travel at once."""

    peers: tuple[int, ...]
    out: Blocks
    into: Blocks
    kept: tuple[tuple[Where, Where], ...]
    """What the rank has already: where in its source, and where in its target."""
    tag: int
    group: tuple[int, ...]
    """The ranks among which all of this is, this one too; none if there is no such group."""

    def start(self, arrays: RankArrays, source: Array, target: Array) -> Started:
        """Begin with it."""
        copy = arrays.library.copy
        out_spans, going = self.out.spans(source, arrays), source
        if out_spans is None:
            out_spans, going = self.out.apart, arrays.flat(self.out.size, source)
            self.out.copy(source, going, copy, into_flat=True)
        into_spans, coming = self.into.spans(target, arrays), target
        if into_spans is None:
            into_spans, coming = self.into.apart, arrays.flat(self.into.size, target)
        pending = None
        if self.peers or self.group:
            sends = PeerSpans(going.reshape(-1), dict(zip(self.peers, out_spans, strict=True)))
            receives = PeerSpans(coming.reshape(-1), dict(zip(self.peers, into_spans, strict=True)))
            pending = arrays.carrier.exchange(sends, receives, self.tag, self.group)
        for here, there in self.kept:
            copy(target[there], source[here])
        staged = None if coming is target else (self.into, target, coming, copy)
        return Started(pending, sum(self.into.counts) * target.itemsize, staged)


def exchange_of(
    moved: Exchange, held: Box, wanted: Box, tag: int, group: tuple[int, ...] = ()
) -> BlockExchange:
    """What a rank that holds a box and wants another sends and receives."""
    sends = {transfer.peer: transfer.box for transfer in moved.sends}
    receives = {transfer.peer: transfer.box for transfer in moved.receives}
    peers = tuple(sorted({*sends, *receives}))
    return BlockExchange(
        peers,
        blocks_of([sends.get(peer) for peer in peers], held),
        blocks_of([receives.get(peer) for peer in peers], wanted),
        tuple((within(each.box, held), within(each.box, wanted)) for each in moved.kept),
        tag,
        group,
    )


@dataclass(frozen=True, slots=True)
class Started:
    """Communication that is under way."""

    pending: Pending | None
    coming: int
    """Bytes that come from others."""
    staged: tuple[Blocks, Array, Array, Copy] | None
    """What came into memory of its own, and where it belongs."""

    def finish(self) -> int:
        """Wait for it, and put what came in place; the bytes that came."""
        if self.pending is not None:
            self.pending.wait()
        if self.staged is not None:
            blocks, target, flat, copy = self.staged
            blocks.copy(target, flat, copy, into_flat=False)
        return self.coming


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

    They tell each other in which memory files their arrays are, read, and wait until those who read
    of them have done so.
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

"""What one rank sends and receives in a step: which collective it is, and in which memory.

Blocks that lie in one piece are sent from and received into the tiles themselves; others go
through memory of their own, or are read where they lie by ranks of the same machine. What a rank
has of its own stays on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.spmd.host_arrays import MemoryFile, file_of, mapped, shared_array
from eindecomp.layout.boxes import meet, shape_of, volume, within

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.engines.spmd.protocols import Carrier, Group, Pending, RankArrays, Span
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.boxes import Box
    from eindecomp.tra.program.exchange import Exchange

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
    in_place: tuple[Span, ...] | None
    """Where they are in an array in one piece; None if some do not lie in one piece there."""

    def spans(self, array: Array, arrays: RankArrays) -> tuple[Span, ...] | None:
        """Where in the flat array they are; None if some do not lie in one piece."""
        return self.in_place if arrays.is_in_one_piece(array) else None

    def copy(self, array: Array, flat: Array, copy: Copy, *, into_flat: bool) -> None:
        """Copy the blocks of an array to memory of their own, or back."""
        for where, shape, (start, count) in zip(self.where, self.shapes, self.apart, strict=True):
            if count:
                own, other = array[where], flat[start : start + count].reshape(shape)
                copy(*((other, own) if into_flat else (own, other)))


def blocks_of(boxes: Sequence[Box | None], held: Box) -> Blocks:
    """The places of boxes in an array that holds `held`."""
    known = [None if box is None or not volume(box) else box for box in boxes]
    where = tuple(() if box is None else within(box, held) for box in known)
    counts = tuple(0 if box is None else volume(box) for box in known)
    ends = list(accumulate(counts, initial=0))
    return Blocks(
        where,
        tuple(() if box is None else shape_of(box) for box in known),
        counts,
        tuple(zip(ends, counts, strict=False)),
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
    """Blocks to peers and from them: an all-to-all of a group, or from rank to rank."""

    group: Group | None
    peers: tuple[int, ...]
    out: Blocks
    into: Blocks
    kept: tuple[tuple[Where, Where], ...]
    """What the rank has already: where in its source, and where in its target."""
    tag: int

    def start(self, arrays: RankArrays, source: Array, target: Array) -> Started:
        """Begin with it."""
        copy = arrays.library.copy
        out_spans, going = self.out.spans(source, arrays), source
        if out_spans is None:
            out_spans, going = self.out.apart, arrays.flat(sum(self.out.counts), source)
            self.out.copy(source, going, copy, into_flat=True)
        into_spans, coming = self.into.spans(target, arrays), target
        if into_spans is None:
            into_spans, coming = self.into.apart, arrays.flat(sum(self.into.counts), target)
        spans = going.reshape(-1), out_spans, coming.reshape(-1), into_spans
        pending = self._begin(arrays.carrier, *spans)
        for here, there in self.kept:
            copy(target[there], source[here])
        return Started(pending, None if coming is target else (self.into, target, coming, copy))

    def _begin(
        self,
        carrier: Carrier,
        out: Array,
        out_spans: Sequence[Span],
        into: Array,
        into_spans: Sequence[Span],
    ) -> Pending | None:
        if self.group is not None:
            return self.group.all_to_all(out, out_spans, into, into_spans)
        sends = _parts(self.peers, out, out_spans)
        receives = _parts(self.peers, into, into_spans)
        return carrier.exchange(sends, receives, self.tag) if sends or receives else None


def exchange_of(
    group: Group | None, moved: Exchange, held: Box, wanted: Box, tag: int
) -> BlockExchange:
    """What a rank that holds a box and wants another sends and receives."""
    sends = {transfer.peer: transfer.box for transfer in moved.sends}
    receives = {transfer.peer: transfer.box for transfer in moved.receives}
    peers = group.ranks if group is not None else tuple(sorted({*sends, *receives}))
    return BlockExchange(
        group,
        peers,
        blocks_of([sends.get(peer) for peer in peers], held),
        blocks_of([receives.get(peer) for peer in peers], wanted),
        tuple((within(each.box, held), within(each.box, wanted)) for each in moved.kept),
        tag,
    )


@dataclass(frozen=True, slots=True)
class BlockGather:
    """An all-gather: every member of a group gets the same block of each."""

    group: Group
    own: Where | None
    """The block of the rank's source that all get; None where it is in the target already."""
    into: Blocks
    """What comes from each member, this rank among them."""
    together: slice | None
    """Where in the flat target that is, if all of it lies in one piece."""

    def start(self, arrays: RankArrays, source: Array, target: Array) -> Started:
        """Begin with it."""
        copy, own, finish = arrays.library.copy, None, None
        if self.own is not None:
            own = source[self.own]
            if not arrays.is_in_one_piece(own):
                own = arrays.flat(prod(own.shape), own).reshape(own.shape)
                copy(own, source[self.own])
            own = own.reshape(-1)
        if self.together is not None and arrays.is_in_one_piece(target):
            coming = target.reshape(-1)[self.together]
        else:
            coming = arrays.flat(sum(self.into.counts), target)
            finish = (self.into, target, coming, copy)
            if own is None:
                self.into.copy(target, coming, copy, into_flat=True)
        return Started(self.group.all_gather(own, coming, self.into.counts), finish)


def gather_of(group: Group, own: Where | None, into: Blocks) -> BlockGather:
    """An all-gather of blocks that come to `into`."""
    together = None if into.in_place is None else _together(into.in_place)
    return BlockGather(group, own, into, together)


@dataclass(frozen=True, slots=True)
class Started:
    """Communication that is under way."""

    pending: Pending | None
    staged: tuple[Blocks, Array, Array, Copy] | None
    """What came into memory of its own, and where it belongs."""

    def finish(self) -> None:
        """Wait for it, and put what came in place."""
        if self.pending is not None:
            self.pending.wait()
        if self.staged is not None:
            blocks, target, flat, copy = self.staged
            blocks.copy(target, flat, copy, into_flat=False)


def _parts(peers: Sequence[int], flat: Array, spans: Sequence[Span]) -> list[tuple[int, Array]]:
    return [(peer, flat[at : at + n]) for peer, (at, n) in zip(peers, spans, strict=True) if n]


def _together(spans: Sequence[Span]) -> slice | None:
    """Where spans are that follow each other without a gap."""
    filled = [span for span in spans if span[1]]
    if any(at + count != then for (at, count), (then, _) in pairwise(filled)):
        return None
    return slice(filled[0][0], sum(filled[-1])) if filled else slice(0, 0)


# Blocks that are read where they lie


@dataclass(frozen=True, slots=True)
class MappedBlock:
    """A block of a peer's array, and where it belongs in this rank's."""

    process: int
    member: int
    """Which member of the group the peer is."""
    shape: tuple[int, ...]
    """That of the peer's array."""
    wanted: Where
    """Where in it the block is."""
    place: Where
    """Where in this rank's array it belongs."""


def mapped_blocks(
    held: Sequence[Box], wanted: Box, own: int, processes: Sequence[int]
) -> tuple[MappedBlock, ...]:
    """What a member reads of the boxes of all; `own` is which of them it is itself."""
    common = [None if k == own else meet(box, wanted) for k, box in enumerate(held)]
    return tuple(
        MappedBlock(processes[k], k, shape_of(held[k]), within(box, held[k]), within(box, wanted))
        for k, box in enumerate(common)
        if box is not None
    )


@dataclass(frozen=True, slots=True)
class MappedExchange:
    """An all-to-all by which every member of a group reads what it wants of the others.

    Members tell each other in which memory files their arrays are, read, and wait until all have
    read.
    """

    group: Group
    reads: tuple[MappedBlock, ...]
    kept: tuple[tuple[Where, Where], ...]
    maps: dict[int, tuple[int, Array]] = field(default_factory=dict[int, "tuple[int, Array]"])
    """Of each member the array that was mapped last, and the serial number of its file."""

    def start(self, arrays: RankArrays, source: Array, target: Array) -> MappedReads:
        """Tell the others where the source is."""
        copy = arrays.library.copy
        file = file_of(source) if arrays.is_in_one_piece(source) else None
        shared = source
        if file is None:  # it was made elsewhere, as from a checkpoint
            shared = shared_array(source.shape, source.dtype)
            copy(shared, source)
            file = file_of(shared)
        files = np.zeros((len(self.group.ranks), 2), np.int64)
        pending = self.group.all_gather(np.array(file), files.reshape(-1), [2] * len(files))
        for here, there in self.kept:
            copy(target[there], source[here])
        return MappedReads(self, pending, files, target, shared, copy)

    def theirs(self, read: MappedBlock, file: MemoryFile, dtype: DType) -> Array:
        """The array of a peer."""
        serial, array = self.maps.get(read.member, (0, None))
        if array is None or serial != file.serial:
            array = mapped(read.process, file, read.shape, dtype)
            self.maps[read.member] = file.serial, array
        return array


@dataclass(frozen=True, slots=True)
class MappedReads:
    """Reading that can begin when all have told where their arrays are."""

    exchange: MappedExchange
    pending: Pending
    files: Array
    target: Array
    source: Array
    """Held until all have read it."""
    copy: Copy

    def finish(self) -> None:
        """Read, and wait for all others to have read."""
        self.pending.wait()
        for each in self.exchange.reads:
            file = MemoryFile(*self.files[each.member].tolist())
            theirs = self.exchange.theirs(each, file, self.target.dtype)
            self.copy(self.target[each.place], theirs[each.wanted])
        done = np.zeros(len(self.files), np.uint8)
        self.exchange.group.all_gather(done[:1].copy(), done, [1] * len(done)).wait()

"""What one rank sends and receives in a step: which collective it is, and in which memory.

Blocks that lie in one piece are sent from and received into the tiles themselves; others go
through memory of their own. What a rank has of its own stays on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.tra.boxes import shape_of, volume, within

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.engines.spmd.transport import Group, Pending, Span, Transport
    from eindecomp.tra.boxes import Box
    from eindecomp.tra.program.exchange import Exchange

    Array = np.ndarray[Any, Any]
    Where = tuple[slice, ...]
    Copy = Callable[[Array, Array], None]

_WORDS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64, 16: np.int64}
"""Elements travel as bits, since no transport knows all types."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of an array: one for each peer, to which it goes or from which it comes."""

    where: tuple[Where, ...]
    shapes: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...]
    """Elements of each; nothing moves where there are none."""

    def spans(self, array: Array) -> list[Span] | None:
        """Where in the flat array they are; None if some do not lie in one piece."""
        if not array.flags.c_contiguous:
            return None
        found: list[Span] = []
        for where, count in zip(self.where, self.counts, strict=True):
            if not count:
                found.append((0, 0))
                continue
            block = array[where]
            if not block.flags.c_contiguous:
                return None
            found.append(((_address(block) - _address(array)) // array.itemsize, count))
        return found

    def apart(self) -> list[Span]:
        """Where they are in memory of their own, one after another."""
        found: list[Span] = []
        start = 0
        for count in self.counts:
            found.append((start, count))
            start += count
        return found

    def copy(self, array: Array, flat: Array, copy: Copy, *, into_flat: bool) -> None:
        """Copy the blocks of an array to memory of their own, or back."""
        for where, shape, (start, count) in zip(self.where, self.shapes, self.apart(), strict=True):
            if count:
                own, other = array[where], flat[start : start + count].reshape(shape)
                copy(*((other, own) if into_flat else (own, other)))


def blocks_of(boxes: Sequence[Box | None], held: Box) -> Blocks:
    """The places of boxes in an array that holds `held`."""
    known = [None if box is None or not volume(box) else box for box in boxes]
    return Blocks(
        tuple(() if box is None else within(box, held) for box in known),
        tuple(() if box is None else shape_of(box) for box in known),
        tuple(0 if box is None else volume(box) for box in known),
    )


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

    def start(self, transport: Transport, source: Array, target: Array, copy: Copy) -> Started:
        """Begin with it."""
        out_spans, going = self.out.spans(source), source
        if out_spans is None:
            out_spans, going = self.out.apart(), np.empty(sum(self.out.counts), source.dtype)
            self.out.copy(source, going, copy, into_flat=True)
        into_spans, coming = self.into.spans(target), target
        if into_spans is None:
            into_spans, coming = self.into.apart(), np.empty(sum(self.into.counts), target.dtype)
        scale = 2 if source.itemsize == 16 else 1  # words for each element
        pending = self._begin(
            transport,
            words(going),
            [(scale * at, scale * n) for at, n in out_spans],
            words(coming),
            [(scale * at, scale * n) for at, n in into_spans],
        )
        for here, there in self.kept:
            copy(target[there], source[here])
        return Started(pending, None if coming is target else (self.into, target, coming, copy))

    def _begin(
        self,
        transport: Transport,
        out: Array,
        out_spans: list[Span],
        into: Array,
        into_spans: list[Span],
    ) -> Pending | None:
        if self.group is not None:
            return self.group.all_to_all(out, out_spans, into, into_spans)
        sends = _parts(self.peers, out, out_spans)
        receives = _parts(self.peers, into, into_spans)
        return transport.exchange(sends, receives, self.tag) if sends or receives else None


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

    def start(self, transport: Transport, source: Array, target: Array, copy: Copy) -> Started:
        """Begin with it."""
        del transport
        own = None if self.own is None else words(np.ascontiguousarray(source[self.own]))
        spans, coming = self.into.spans(target), target.reshape(-1)
        if spans is not None and _is_one_piece(spans):
            start = next((at for at, count in spans if count), 0)
            coming = coming[start : start + sum(self.into.counts)]
            finish = None
        else:
            coming = np.empty(sum(self.into.counts), target.dtype)
            finish = (self.into, target, coming, copy)
            if own is None:
                self.into.copy(target, coming, copy, into_flat=True)
        scale = 2 if target.itemsize == 16 else 1
        counts = [count * scale for count in self.into.counts]
        return Started(self.group.all_gather(own, words(coming), counts), finish)


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


def words(array: Array) -> Array:
    """An array in one piece as a flat one of integers, with the same bits."""
    return array.reshape(-1).view(_WORDS[array.itemsize])


def _parts(peers: Sequence[int], flat: Array, spans: Sequence[Span]) -> list[tuple[int, Array]]:
    return [(peer, flat[at : at + n]) for peer, (at, n) in zip(peers, spans, strict=True) if n]


def _is_one_piece(spans: Sequence[Span]) -> bool:
    """Whether spans follow each other without a gap."""
    end = None
    for at, count in spans:
        if count and end is not None and at != end:
            return False
        if count:
            end = at + count
    return True


def _address(array: Array) -> int:
    return array.__array_interface__["data"][0]

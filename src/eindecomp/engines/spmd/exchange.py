"""What one rank sends and receives in a step, in which memory, and by what.

Blocks that lie in one piece are sent from and received into the tiles themselves; others go
through memory of their own. What a rank has of its own stays on it. A `Transport` moves flat
arrays, never objects; a kernel library makes, computes and copies them, and what else a rank has to
know of its tiles is in `RankArrays`: how they lie, how they travel, when a device has done with
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import numpy as np

from eindecomp.graph.vertex import Vertex
from eindecomp.kernels.library import KernelLibrary
from eindecomp.lang.dtypes import DType
from eindecomp.layout.boxes import Box, shape_of, volume, within
from eindecomp.tra.program.device_row import Exchange

Counts = np.ndarray[Any, Any]
Where = tuple[slice, ...]
Copy = Callable[[Any, Any], None]

Array = Any
"""Of whatever kind is moved and computed."""

FlatSpan = tuple[int, int]
"""Where in a flat array elements begin, and how many they are."""


class PeerSpans(NamedTuple):
    """A flat array, and which part of it goes to each other rank or comes from it."""

    array: Array
    spans: Mapping[int, FlatSpan]

    def parts(self) -> list[tuple[int, Array]]:
        """The ranks, each with its part."""
        return [(rank, self.array[at : at + count]) for rank, (at, count) in self.spans.items()]


class Pending(Protocol):
    """Communication that was started."""

    def wait(self) -> None:
        """Return when it is done: what was sent may be changed, what was asked for is there."""


class Carrier(Protocol):
    """What moves arrays of one kind from rank to rank."""

    def exchange(self, sends: PeerSpans, receives: PeerSpans, tag: int) -> Pending:
        """Send elements to other ranks and receive theirs; nothing else is under way with this tag.

        All ranks begin their exchanges in the order of the program.
        """
        ...


class Transport(Carrier, Protocol):
    """This process among the ranks of its job, whose arrays in the host's memory it moves."""

    name: str
    """What it is called: `mpi` or `torch`."""
    rank: int
    """Which rank this process is."""
    size: int
    """How many ranks there are."""

    def gather_bytes(self, own: bytes) -> list[bytes]:
        """What every rank has to say, by rank."""
        ...

    def gather_counts(self, own: Counts) -> Counts:
        """The integers of every rank, as many of each: a row for each rank."""
        ...

    def post(self, state: bytes) -> None:
        """Tell the ranks that watch this one how it is; called by the watching thread only."""

    def heard(self) -> dict[int, bytes]:
        """What ranks have told since this was asked last; called by the watching thread only."""
        ...

    def lost(self) -> list[int]:
        """The ranks that are known to be gone."""
        ...

    def abort(self) -> None:
        """End the whole job at once, this process too."""


class RankArrays(Protocol):
    """One kind of array, on one rank."""

    kind: str
    """What ranks have to agree on."""
    library: KernelLibrary
    """What computes them."""
    carrier: Carrier
    """What moves them from rank to rank."""

    def stored(self, given: Any, vertex: Vertex) -> Any:
        """The array given for an input, checked, and left where it is."""
        ...

    def block(self, given: Any, box: Box, *, copy: bool) -> Array:
        """A block of what was given, in one piece; without `copy` it may share its memory."""
        ...

    def taken(self, block: Array) -> Array:
        """A block of a tensor, which may have been made of arrays of another kind."""
        ...

    def is_in_one_piece(self, array: Array) -> bool:
        """Whether an array lies row by row, without gaps."""
        ...

    def flat(self, count: int, like: Array) -> Array:
        """A flat array of another's type, with anything in it."""
        ...

    def make(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """An array with anything in it."""
        ...

    def give(self, array: Array) -> None:
        """Take back an array that nobody reads any more; its memory may be used again."""

    def let_go(self) -> None:
        """Let go of all arrays that were given back."""

    def settle(self) -> None:
        """Wait until the device has done all that it was told to."""


# Blocks of arrays


@dataclass(frozen=True, slots=True)
class PeerBlocks:
    """Blocks of an array: one for each peer, to which it goes or from which it comes."""

    apart: Mapping[int, FlatSpan]
    """Where they are in memory of their own, one after another."""
    size: int
    """The elements of that memory."""
    in_place: Mapping[int, FlatSpan] | None
    """Where they are in an array in one piece; None if some do not lie in one piece there."""
    where: Mapping[FlatSpan, tuple[Where, tuple[int, ...]]]
    """For each span of that memory the place in the array, and the shape."""

    def spans(self, array: Array, arrays: RankArrays) -> Mapping[int, FlatSpan] | None:
        """Where in the flat array they are; None if some do not lie in one piece."""
        return self.in_place if arrays.is_in_one_piece(array) else None

    def copy(self, array: Array, flat: Array, copy: Copy, *, into_flat: bool) -> None:
        """Copy the blocks of an array to memory of their own, or back."""
        for (start, count), (where, shape) in self.where.items():
            own, other = array[where], flat[start : start + count].reshape(shape)
            copy(*((other, own) if into_flat else (own, other)))


def blocks_of(boxes: Mapping[int, Box], held: Box) -> PeerBlocks:
    """The places of peers' boxes in an array that holds `held`; nothing moves of empty ones."""
    sizes = {box: volume(box) for box in boxes.values() if volume(box)}
    # What several peers get, as in an all-gather, is put in one place.
    starts = accumulate(sizes.values(), initial=0)
    spans = {box: (start, sizes[box]) for box, start in zip(sizes, starts, strict=False)}
    peers = {peer: box for peer, box in boxes.items() if box in spans}
    begins = {box: _begin(box, held) for box in sizes}
    in_place: dict[int, FlatSpan] = {}
    for peer, box in peers.items():
        if (begin := begins[box]) is not None:
            in_place[peer] = begin, sizes[box]
    apart = {peer: spans[box] for peer, box in peers.items()}
    lie_so = None if None in begins.values() else in_place
    where = {spans[box]: (within(box, held), shape_of(box)) for box in sizes}
    return PeerBlocks(apart, sum(sizes.values()), lie_so, where)


def _begin(box: Box, held: Box) -> int | None:
    """The first element of a box in a flat array that holds `held`; None if it has gaps there."""
    begin, is_inner_whole, stride = 0, True, 1
    for (low, high), (start, stop) in zip(reversed(box), reversed(held), strict=True):
        if high - low > 1 and not is_inner_whole:
            return None
        is_inner_whole = is_inner_whole and high - low == stop - start
        begin += (low - start) * stride
        stride *= stop - start
    return begin


@dataclass(frozen=True, slots=True)
class BlockExchange:
    """Blocks to peers and from them, which travel at once."""

    out: PeerBlocks
    into: PeerBlocks
    kept: tuple[tuple[Where, Where], ...]
    """What the rank has already: where in its source, and where in its target."""
    tag: int

    def start(self, arrays: RankArrays, source: Array, target: Array) -> Started:
        """Begin to exchange blocks of `source` and `target`."""
        copy = arrays.library.copy
        out_spans, going = self.out.spans(source, arrays), source
        if out_spans is None:
            out_spans, going = self.out.apart, arrays.flat(self.out.size, source)
            self.out.copy(source, going, copy, into_flat=True)
        into_spans, coming = self.into.spans(target, arrays), target
        if into_spans is None:
            into_spans, coming = self.into.apart, arrays.flat(self.into.size, target)
        pending = None
        if out_spans or into_spans:
            sends = PeerSpans(going.reshape(-1), out_spans)
            receives = PeerSpans(coming.reshape(-1), into_spans)
            pending = arrays.carrier.exchange(sends, receives, self.tag)
        for here, there in self.kept:
            copy(target[there], source[here])
        staged = None if coming is target else (self.into, target, coming)
        received = sum([count for _, count in into_spans.values()]) * target.itemsize
        return Started(arrays, pending, received, None if going is source else going, staged)


def exchange_of(moved: Exchange, held: Box, wanted: Box, tag: int) -> BlockExchange:
    """What a rank that holds a box and wants another sends and receives."""
    return BlockExchange(
        blocks_of({transfer.peer: transfer.box for transfer in moved.sends}, held),
        blocks_of({transfer.peer: transfer.box for transfer in moved.receives}, wanted),
        tuple((within(each.box, held), within(each.box, wanted)) for each in moved.kept),
        tag,
    )


@dataclass(frozen=True, slots=True)
class Started:
    """Communication that is under way."""

    arrays: RankArrays
    pending: Pending | None
    received: int
    """Bytes that come from others."""
    sent: Array | None
    """What was put together to be sent."""
    staged: tuple[PeerBlocks, Array, Array] | None
    """What comes into memory of its own: how it is cut, where it belongs, and that memory."""

    def finish(self) -> int:
        """Wait for it, and put what came in place; the bytes that came."""
        if self.pending is not None:
            self.pending.wait()
        if self.sent is not None:
            self.arrays.give(self.sent)
        if self.staged is not None:
            blocks, target, flat = self.staged
            blocks.copy(target, flat, self.arrays.library.copy, into_flat=False)
            self.arrays.give(flat)
        return self.received

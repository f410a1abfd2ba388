"""One device's row of a program: its blocks, and what it receives from whom and sends to whom.

Where a tensor lies in one tiling and is wanted in another, a device takes each block from the
nearest device that holds it: one whose coordinates are its own wherever the tiling leaves a choice.
So both ends of a transfer follow from arithmetic on the cuts, without a look at all pairs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from eindecomp.layout.boxes import Box, meet, shares, volume
from eindecomp.layout.cut import Cut, Span, axes_in, is_plain, pieces_by, used_axes
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import (
    Tiling,
    box_on,
    coordinates,
    device_at,
    ends,
    group_along,
    place_along,
    replicated_axes,
)
from eindecomp.tra.program import steps


@dataclass(frozen=True, slots=True)
class Transfer:
    """A block that a device receives from a peer, or sends to one."""

    peer: int
    box: Box


Transfers = tuple[Transfer, ...]


@dataclass(frozen=True, slots=True)
class Exchange:
    """What one device receives and sends in a step, and how many elements that is."""

    receives: Transfers = ()
    sends: Transfers = ()
    elements_in: int = 0
    elements_out: int = 0
    kept: Transfers = ()
    """The wanted block that the device already holds, if any, with itself as the peer."""


def exchange(receives: Transfers, sends: Transfers, kept: Transfers = ()) -> Exchange:
    """An exchange with its elements counted."""
    inward, outward = (sum(volume(each.box) for each in part) for part in (receives, sends))
    return Exchange(receives, sends, inward, outward, kept)


@lru_cache(maxsize=1 << 10)
def moves(mesh: Mesh, held: Tiling, wanted: Tiling, device: int, first: int = 0) -> Exchange:
    """What a device receives and sends where a tensor moves from one tiling to another.

    Only the first of devices that differ along the axes `first` want anything.
    """
    sends = sent(mesh, held, wanted, device)
    if first:
        sends = tuple(each for each in sends if is_first(mesh, first, each.peer))
    if not is_first(mesh, first, device):
        return exchange((), sends)
    own = meet(wanted.box(mesh, device), held.box(mesh, device))
    receives = received(mesh, held, wanted, device)
    return exchange(receives, sends, () if own is None else (Transfer(device, own),))


def is_first(mesh: Mesh, axes: int, device: int) -> bool:
    """Whether the coordinates of a device along some axes, given as bits, are all 0."""
    return not place_along(mesh, axes, device)[0]


def received(mesh: Mesh, held: Tiling, wanted: Tiling, device: int) -> Transfers:
    """The blocks that a device wants and lacks, each with the peer that sends it."""
    box = wanted.box(mesh, device)
    if not volume(box):
        return ()
    if _gathers_shares(held, wanted):
        peers = group_along(mesh, held.split, device)
        blocks = zip(peers, shares(box, len(peers)), strict=True)
        return tuple(
            Transfer(peer, part) for peer, part in blocks if peer != device and volume(part)
        )
    if held.split or not is_plain(held.cut):
        return _received_by_search(mesh, held, box, device)
    transfers: list[Transfer] = []
    for place, tile in _tiles_that_meet(mesh, held.cut, box, coordinates(mesh, device)):
        peer = device_at(mesh, place)
        shared = meet(box, tile)
        if peer != device and shared is not None:
            transfers.append(Transfer(peer, shared))
    return tuple(transfers)


def sent(mesh: Mesh, held: Tiling, wanted: Tiling, device: int) -> Transfers:
    """The blocks that a device sends to peers."""
    if _gathers_shares(held, wanted):
        own = held.box(mesh, device)
        peers = group_along(mesh, held.split, device) if volume(own) else ()
        return tuple(Transfer(peer, own) for peer in peers if peer != device)
    if held.split or wanted.split or not (is_plain(held.cut) and is_plain(wanted.cut)):
        lists = ((peer, received(mesh, held, wanted, peer)) for peer in range(mesh.devices))
        return tuple(Transfer(p, one.box) for p, own in lists for one in own if one.peer == device)
    return tuple(_sent_to_readers(mesh, held.cut, wanted.cut, device))


def _gathers_shares(held: Tiling, wanted: Tiling) -> bool:
    """Whether the shares of tiles are put together to whole tiles."""
    return bool(held.split) and not wanted.split and held.cut == wanted.cut


def _sent_to_readers(mesh: Mesh, held: Cut, wanted: Cut, device: int) -> Iterator[Transfer]:
    """The blocks sent to each device that wants them and has no nearer holder."""
    own = coordinates(mesh, device)
    box = box_on(mesh, held, device)
    shared = axes_in(mesh, replicated_axes(mesh, held))
    loose = used_axes(held) & ~used_axes(wanted)
    axes = axes_in(mesh, loose)
    for place, tile in _tiles_that_meet(mesh, wanted, box, own):
        block = meet(box, tile)
        if block is None or any(place[axis] != own[axis] for axis in shared):
            continue
        for digits in product(*(range(mesh.sizes[axis]) for axis in axes)):
            for axis, digit in zip(axes, digits, strict=True):
                place[axis] = digit
            if (peer := device_at(mesh, place)) != device:
                yield Transfer(peer, block)


def _tiles_that_meet(
    mesh: Mesh, cut: Cut, box: Box, place: list[int]
) -> Iterator[tuple[list[int], Box]]:
    """The tiles of a cut that share elements with a box.

    Each comes with the coordinates of a device that holds it, which are the given ones along axes
    that do not cut.
    """
    for index in product(*(_pieces(mesh, span, side) for span, side in zip(cut, box, strict=True))):
        there = list(place)
        for span, piece in zip(cut, index, strict=True):
            for axis in reversed(span.axes):
                piece, there[axis] = divmod(piece, mesh.sizes[axis])
        yield there, tuple(ends(mesh, span, k) for span, k in zip(cut, index, strict=True))


def _pieces(mesh: Mesh, span: Span, side: tuple[int, int]) -> range:
    """The pieces of a dimension that reach into an interval."""
    pieces = range(pieces_by(mesh, span.axes))
    low, high = side

    def begin(piece: int) -> int:
        """Where a piece begins; an empty one begins where the next one does."""
        return ends(mesh, span, piece)[0]

    first = max(bisect_right(pieces, low, key=begin) - 1, 0)
    return range(first, bisect_left(pieces, high, key=begin))


def _received_by_search(mesh: Mesh, held: Tiling, box: Box, device: int) -> Transfers:
    """Like `received`, where tiles overlap or are shared out: device by device, nearest first.

    A block that a nearer device has sent already is not sent again.
    """
    own = coordinates(mesh, device)
    nearest = sorted(
        range(mesh.devices),
        key=lambda other: [a != b for a, b in zip(coordinates(mesh, other), own, strict=True)],
    )
    seen: set[Box] = set()
    transfers: list[Transfer] = []
    for other in nearest:
        tile = held.box(mesh, other)
        shared = meet(box, tile) if volume(tile) else None
        if shared is None or tile in seen:
            continue
        seen.add(tile)
        if other != device:
            transfers.append(Transfer(other, shared))
    return tuple(sorted(transfers, key=lambda transfer: transfer.peer))


NOTHING = Exchange()


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """A step as one device carries it out."""

    step: steps.Step
    box: Box
    """The block that the device makes, completes or lets go of."""
    reads: tuple[Box | None, ...] = ()
    """For a kernel call the block of each operand, None for one that is not read."""
    numbers: Box = ()
    """And what it has of the labels that only windows have."""
    exchange: Exchange = NOTHING
    members: tuple[int, ...] = ()
    """For a reduction the devices whose partial results are combined, in this order."""
    is_identity: bool = False
    """Of a move, whether the device has nothing of what moves and makes the identity instead."""


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """What one device does, step by step."""

    device: int
    steps: tuple[DeviceStep, ...]
    received: int
    """Bytes that others send to the device."""
    sent: int
    """Bytes that the device sends."""

    def __iter__(self) -> Iterator[DeviceStep]:
        return iter(self.steps)


def step_on(
    mesh: Mesh, buffers: Sequence[steps.Buffer], step: steps.Step, device: int
) -> DeviceStep:
    """A step as one device carries it out."""
    match step:
        case steps.Load() | steps.Generate() | steps.Free():
            return DeviceStep(step, buffers[steps.used_by(step)[-1]].box(mesh, device))
        case steps.Compute():
            reads = tuple(read and box_on(mesh, read.cut, device) for read in step.reads)
            numbers = box_on(mesh, step.numbers, device)
            return DeviceStep(step, buffers[step.into].box(mesh, device), reads, numbers)
        case steps.Move():
            held, wanted = buffers[step.source].tiling, buffers[step.into].tiling
            own = moves(mesh, held, wanted, device, step.first)
            is_identity = not is_first(mesh, step.first, device)
            box = wanted.box(mesh, device)
            return DeviceStep(step, box, exchange=own, is_identity=is_identity)
        case steps.ReduceScatter():
            home = buffers[step.into].tiling.cut
            box, members, own = reduction(mesh, home, step.axes, step.split, device)
            return DeviceStep(step, box, exchange=own, members=members)
        case steps.AllGather():
            home = buffers[step.buffer].tiling.cut
            own = moves(mesh, Tiling(home, step.axes), Tiling(home), device)
            return DeviceStep(step, box_on(mesh, home, device), exchange=own)


@lru_cache(maxsize=1 << 10)
def reduction(
    mesh: Mesh, home: Cut, axes: int, split: int, device: int
) -> tuple[Box, tuple[int, ...], Exchange]:
    """The block that a device reduces, with whom, what they send and what it sends."""
    members = group_along(mesh, axes, device)
    own = Tiling(home, split)
    box = own.box(mesh, device)
    others = [other for other in members if other != device]
    receives = tuple(Transfer(other, box) for other in others) if volume(box) else ()
    blocks = ((other, own.box(mesh, other)) for other in others)
    sends = tuple(Transfer(other, block) for other, block in blocks if volume(block))
    return box, members, exchange(receives, sends)

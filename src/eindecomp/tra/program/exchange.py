"""Who sends what to whom when a tensor that lies in one tiling is wanted in another.

A device takes each block from the nearest device that holds it: one whose coordinates are its own
wherever the tiling leaves a choice. So both ends of a transfer follow from arithmetic on the cuts,
without a look at all pairs of devices.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from eindecomp.layout.boxes import Box, meet, shares, volume
from eindecomp.layout.cut import is_plain, pieces_by, used_axes
from eindecomp.layout.tiling import (
    Tiling,
    box_on,
    coordinates,
    device_at,
    ends,
    group_along,
    replicated_axes,
)

if TYPE_CHECKING:
    from eindecomp.layout.cut import Cut, Span
    from eindecomp.layout.mesh import Mesh


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
    """The block that the device has already of what it wants, if any: it is its own peer."""


def exchange(receives: Transfers, sends: Transfers, kept: Transfers = ()) -> Exchange:
    """An exchange with its elements counted."""
    inward, outward = (sum(volume(each.box) for each in part) for part in (receives, sends))
    return Exchange(receives, sends, inward, outward, kept)


@lru_cache(maxsize=1 << 10)
def moves(mesh: Mesh, held: Tiling, wanted: Tiling, device: int) -> Exchange:
    """What a device receives and sends where a tensor moves from one tiling to another."""
    both = received(mesh, held, wanted, device), sent(mesh, held, wanted, device)
    own = meet(wanted.box(mesh, device), held.box(mesh, device))
    return exchange(*both, () if own is None else (Transfer(device, own),))


def received(mesh: Mesh, held: Tiling, wanted: Tiling, device: int) -> Transfers:
    """The blocks that a device lacks of what it wants, each with the peer that sends it."""
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
    found: list[Transfer] = []
    for place, tile in _tiles_that_meet(mesh, held.cut, box, coordinates(mesh, device)):
        peer = device_at(mesh, place)
        shared = meet(box, tile)
        if peer != device and shared is not None:
            found.append(Transfer(peer, shared))
    return tuple(found)


def sent(mesh: Mesh, held: Tiling, wanted: Tiling, device: int) -> Transfers:
    """The blocks that a device sends to peers."""
    if _gathers_shares(held, wanted):
        own = held.box(mesh, device)
        peers = group_along(mesh, held.split, device) if volume(own) else ()
        return tuple(Transfer(peer, own) for peer in peers if peer != device)
    if held.split or wanted.split or not (is_plain(held.cut) and is_plain(wanted.cut)):
        return tuple(
            Transfer(peer, transfer.box)
            for peer in range(mesh.devices)
            for transfer in received(mesh, held, wanted, peer)
            if transfer.peer == device
        )
    return tuple(_sent_to_readers(mesh, held.cut, wanted.cut, device))


def _gathers_shares(held: Tiling, wanted: Tiling) -> bool:
    """Whether the shares of tiles are put together to whole tiles."""
    return bool(held.split) and not wanted.split and held.cut == wanted.cut


def _sent_to_readers(mesh: Mesh, held: Cut, wanted: Cut, device: int) -> Iterator[Transfer]:
    """What goes to those who want some of what a device holds, and to whom no holder is nearer."""
    own = coordinates(mesh, device)
    box = box_on(mesh, held, device)
    shared = replicated_axes(mesh, held)
    loose = used_axes(held) & ~used_axes(wanted)
    axes = [axis for axis in range(len(mesh.sizes)) if loose >> axis & 1]
    for place, tile in _tiles_that_meet(mesh, wanted, box, own):
        block = meet(box, tile)
        if block is None or any(
            shared >> axis & 1 and digit != own[axis] for axis, digit in enumerate(place)
        ):
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
    lows = _Lows(mesh, span)
    low, high = side
    first = max(bisect_right(lows, low) - 1, 0)
    last = bisect_left(lows, high)
    return range(first, last)


class _Lows:
    """Where the pieces of a dimension begin, as a sequence to search in.

    Pieces that are empty begin where the next one does.
    """

    def __init__(self, mesh: Mesh, span: Span) -> None:
        self.mesh, self.span = mesh, span

    def __len__(self) -> int:
        return pieces_by(self.mesh, self.span.axes)

    def __getitem__(self, k: int) -> int:
        return ends(self.mesh, self.span, k)[0]


def _received_by_search(mesh: Mesh, held: Tiling, box: Box, device: int) -> Transfers:
    """The same where tiles overlap or are shared out: device by device, the nearest one first.

    A block that a nearer device has sent already is not sent again.
    """
    own = coordinates(mesh, device)
    nearest = sorted(
        range(mesh.devices),
        key=lambda other: [a != b for a, b in zip(coordinates(mesh, other), own, strict=True)],
    )
    seen: set[Box] = set()
    found: list[Transfer] = []
    for other in nearest:
        tile = held.box(mesh, other)
        shared = meet(box, tile) if volume(tile) else None
        if shared is None or tile in seen:
            continue
        seen.add(tile)
        if other != device:
            found.append(Transfer(other, shared))
    return tuple(sorted(found, key=lambda transfer: transfer.peer))

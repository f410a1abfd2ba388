"""What devices exchange when a tensor changes its layout, and the least that they can.

Bytes are those that devices receive, all together. No schedule whatever moves less than
`least_elements`, where messages carry elements of the tensor or combinations of partial ones:

- A device has to receive each element that it wants and lacks, so a tensor that is not pending
  moves at least Σ |wanted − held|. Fetching exactly those moves no more.
- An element that is pending in n parts is on disjoint sets of devices, one for each part, and t
  devices want it reduced. Until the first device knows the result, the devices whose messages it
  depends on are connected by them, so there were n − 1 messages, or n if that device held no part.
  Every other device that wants the result receives one more, later. That makes n − 1 + t messages,
  one fewer only if some device both holds a part and wants the result. Reducing each element on
  such a device and sending it to the others moves no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from eindecomp.layout.boxes import Box, meet, shares, volume
from eindecomp.layout.cut import Cut, parts_of
from eindecomp.layout.mesh import Ints, Mesh
from eindecomp.layout.overlaps import lacking, moved, totals, volumes
from eindecomp.layout.tiling import Tiling, box_on, group_along, place_along
from eindecomp.tra.program.device_row import Exchange, Transfer, exchange, moves

Blocks = tuple[tuple[Box, ...], ...]
"""The blocks of each device."""


class Held(NamedTuple):
    """A layout: how a tensor is cut, and the axes (as bits) along which it waits to be reduced."""

    cut: Cut
    pending: int = 0


@dataclass(frozen=True, slots=True)
class Fetch:
    """Every device receives what it lacks of a cut, from the nearest device that holds it."""

    mesh: Mesh
    before: Cut
    after: Cut
    reduces: int = 0

    def exchange(self, device: int) -> Exchange:
        """What a device receives, sends and keeps."""
        return moves(self.mesh, Tiling(self.before), Tiling(self.after), device)

    def boxes(self, device: int) -> tuple[Box, ...]:
        """The block that a device has after it."""
        return (box_on(self.mesh, self.after, device),)

    def received(self) -> Ints:
        """How many elements each device receives."""
        return lacking(self.mesh, self.before, self.after)


@dataclass(frozen=True, slots=True)
class Reduce:
    """Devices that differ along the reduced axes combine their parts, each for its own blocks."""

    mesh: Mesh
    blocks: Blocks
    reduces: int

    def exchange(self, device: int) -> Exchange:
        """What a device receives and sends."""
        others = [d for d in group_along(self.mesh, self.reduces, device) if d != device]
        blocks = self.blocks
        receives = (Transfer(d, part) for d in others for part in blocks[device] if volume(part))
        sends = (Transfer(d, part) for d in others for part in blocks[d] if volume(part))
        return exchange(tuple(receives), tuple(sends))

    def boxes(self, device: int) -> tuple[Box, ...]:
        """The blocks that a device has after it."""
        return self.blocks[device]

    def received(self) -> Ints:
        """How many elements each device receives."""
        others = parts_of(self.mesh, self.reduces) - 1
        return others * np.array([sum(map(volume, own)) for own in self.blocks], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Gather:
    """Every device receives what it wants from those that reduced it, along some axes."""

    mesh: Mesh
    blocks: Blocks
    along: int
    after: Cut
    reduces: int = 0

    def exchange(self, device: int) -> Exchange:
        """What a device receives, sends and keeps."""
        others = [d for d in group_along(self.mesh, self.along, device) if d != device]
        return exchange(
            tuple(Transfer(d, part) for d in others for part in self._wanted(d, device)),
            tuple(Transfer(d, part) for d in others for part in self._wanted(device, d)),
            tuple(Transfer(device, part) for part in self._wanted(device, device)),
        )

    def boxes(self, device: int) -> tuple[Box, ...]:
        """The block that a device has after it."""
        return (box_on(self.mesh, self.after, device),)

    def received(self) -> Ints:
        """How many elements each device receives."""
        # What a device reduces of a tile that it does not want, it has in vain.
        own = (self._wanted(device, device) for device in range(self.mesh.devices))
        return volumes(self.mesh, self.after) - np.array([sum(map(volume, each)) for each in own])

    def _wanted(self, reducer: int, reader: int) -> list[Box]:
        """The blocks of one device that another one wants."""
        [wanted] = self.boxes(reader)
        return [part for part in self.blocks[reducer] if meet(part, wanted) is not None]


Phase = Fetch | Reduce | Gather
"""Every device sends and receives at once, then has other blocks than before."""


def tiles(mesh: Mesh, tiling: Tiling) -> Blocks:
    """The one block of each device."""
    return tuple((tiling.box(mesh, device),) for device in range(mesh.devices))


def reducers(mesh: Mesh, source: Held, target: Held) -> Blocks:
    """For each device the blocks of a pending tensor that it reduces.

    Every block is reduced by devices that hold a part of it, and by such that want the result
    wherever there are any; those share it out among them.
    """
    spread: list[list[Box]] = [[] for _ in range(mesh.devices)]
    for group in _groups(mesh, target.pending):
        holders, wanting = (_by_box(mesh, held.cut, group) for held in (source, target))
        for wanted, readers in wanting.items():
            for tile, own in holders.items():
                block = meet(wanted, tile)
                if block is None:
                    continue
                both = [device for device in own if device in readers]
                chosen = both or [*own]
                for device, part in zip(chosen, shares(block, len(chosen)), strict=True):
                    if volume(part):
                        spread[device].append(part)
    return tuple(tuple(own) for own in spread)


def _groups(mesh: Mesh, axes: int) -> list[Sequence[int]]:
    """The devices in groups of equal coordinates along axes."""
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for device in range(mesh.devices):
        groups[place_along(mesh, axes, device)[0]].append(device)
    return [*groups.values()]


def _by_box(mesh: Mesh, cut: Cut, devices: Sequence[int]) -> dict[Box, dict[int, None]]:
    """The devices that hold each block; a dict, which is an ordered set."""
    by_box: defaultdict[Box, dict[int, None]] = defaultdict(dict)
    for device in devices:
        by_box[box_on(mesh, cut, device)][device] = None
    return by_box


def least_elements(mesh: Mesh, source: Held, target: Held) -> int:
    """The fewest elements that devices can receive in all, as the head of this file proves."""
    reduced = source.pending & ~target.pending
    if not reduced:
        return int(moved(mesh, [source.cut], [target.cut])[0, 0])
    size = prod(span.stop - span.start for span in target.cut)
    slices, parts = parts_of(mesh, target.pending), parts_of(mesh, reduced)
    met = 0
    for group in _groups(mesh, target.pending):
        pairs = {tuple(box_on(mesh, held.cut, d) for held in (source, target)) for d in group}
        blocks = (meet(one, other) for one, other in pairs)
        met += sum(volume(block) for block in blocks if block is not None)
    return size * slices * (parts - 1) + int(totals(mesh, [target.cut])[0]) - met


def direct(mesh: Mesh, source: Held, target: Held) -> tuple[Phase, ...]:
    """The phases in which each device receives exactly what it lacks: they move the least."""
    reduced, every = source.pending & ~target.pending, (1 << len(mesh.sizes)) - 1
    if not reduced:
        return (Fetch(mesh, source.cut, target.cut),)
    blocks = reducers(mesh, source, target)
    gathered = Gather(mesh, blocks, every & ~target.pending, target.cut)
    return Reduce(mesh, blocks, reduced), gathered

"""A move between any two tilings as one phase: every block straight from who holds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.layout.boxes import volume
from eindecomp.layout.cut import interval, is_plain
from eindecomp.layout.tiling import replicated_axes
from eindecomp.tra.program.exchange import received
from eindecomp.tra.simulation.blocks import axes_in
from eindecomp.tra.simulation.phases import Pairs, Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.tiling import Tiling
    from eindecomp.tra.simulation.network import Level
    from eindecomp.tra.simulation.phases import Peers

    Ints = NDArray[np.int64]

_ROWS = 1 << 20  # elements of a table of pairs that is worked on at once


def move_directly(
    mesh: Mesh,
    levels: Sequence[Level],
    held: Tiling,
    wanted: Tiling,
    item: int,
    peers: Peers | None = None,
) -> Phase:
    """A move in which all blocks travel at once; its peers are found where none are given."""
    devices = mesh.devices
    taken = np.zeros((len(levels), devices), dtype=np.int64)
    given = np.zeros_like(taken)
    ends: list[tuple[Ints, Ints]] = []
    for rows, table in _tables(mesh, held, wanted):
        table = table * item
        alike = np.ones(table.shape, dtype=bool)
        for number, level in enumerate(levels):
            place = _place_on(mesh, level)
            apart = place[rows, None] != place[None, :]
            crossing = np.where(alike & apart, table, 0)
            taken[number, rows] = crossing.sum(axis=1)
            given[number] += crossing.sum(axis=0)
            alike &= ~apart
        if peers is None:
            to, source = np.nonzero(table)
            ends.append((to + rows[0], source))
    shape = (len(levels), *mesh.sizes)
    return Phase(taken.reshape(shape), given.reshape(shape), 1, peers or _pairs(ends))


def _pairs(ends: list[tuple[Ints, Ints]]) -> Pairs:
    """Pairs of receivers and senders, in both directions."""
    to = np.concatenate([one for one, _ in ends])
    source = np.concatenate([other for _, other in ends])
    return Pairs(np.concatenate([to, source]), np.concatenate([source, to]))


def _tables(mesh: Mesh, held: Tiling, wanted: Tiling) -> Iterator[tuple[Ints, Ints]]:
    """Some receivers at a time: the elements that each of them receives from every device."""
    devices = mesh.devices
    some = max(_ROWS // devices, 1)
    plain = not held.split and not wanted.split and is_plain(held.cut)
    for first in range(0, devices, some):
        rows = np.arange(first, min(first + some, devices), dtype=np.int64)
        found = _overlaps(mesh, held, wanted, rows) if plain else _listed(mesh, held, wanted, rows)
        found[np.arange(len(rows)), rows] = 0  # what a device holds itself
        yield rows, found


def _overlaps(mesh: Mesh, held: Tiling, wanted: Tiling, rows: Ints) -> Ints:
    """Blocks come from the device that agrees with the receiver wherever there is a choice."""
    found = np.ones((len(rows), mesh.devices), dtype=np.int64)
    for ours, theirs in zip(held.cut, wanted.cut, strict=True):
        (low, high), (first, last) = interval(mesh, ours), interval(mesh, theirs)
        ends = np.minimum(high[None, :], last[rows, None])
        found *= np.maximum(ends - np.maximum(low[None, :], first[rows, None]), 0)
    for axis in axes_in(mesh, replicated_axes(mesh, held.cut)):
        place = mesh.coordinates[axis]
        found *= place[rows, None] == place[None, :]
    return found


def _listed(mesh: Mesh, held: Tiling, wanted: Tiling, rows: Ints) -> Ints:
    """The same where tiles overlap or are shared out, as the program lists it."""
    found = np.zeros((len(rows), mesh.devices), dtype=np.int64)
    for row, device in enumerate(rows):
        for block in received(mesh, held, wanted, int(device)):
            found[row, block.peer] += volume(block.box)
    return found


def _place_on(mesh: Mesh, level: Level) -> Ints:
    """A number for every device's coordinates on a level."""
    place = np.zeros(mesh.devices, dtype=np.int64)
    for axis in level.axes:
        place = place * mesh.sizes[axis] + mesh.coordinates[axis]
    return place

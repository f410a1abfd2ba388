"""The links of a machine, and the phases in which exchanges use them, level by level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from eindecomp.errors import InputError
from eindecomp.layout.boxes import volume
from eindecomp.layout.cut import axes_in, interval, is_plain, pieces_by
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.overlaps import first_along
from eindecomp.layout.tiling import Tiling, replicated_axes
from eindecomp.planner.costs.collectives import Level, crossed, fetched_by, rounds_of, sharers
from eindecomp.planner.costs.machine import FETCHES, ROUNDS, Collective
from eindecomp.solve.problem.arrays import Ints
from eindecomp.tra.program.device_row import received

WAYS = (*ROUNDS, "direct")
CARDS = ("device", "node")


@dataclass(frozen=True, slots=True)
class Network:
    """How collectives are made, and who shares a link."""

    gather: str = "doubling"
    """All-gathers and other moves: level by level from the outermost in, or all messages at once.

    The number of rounds on a level is that of a `Machine`.
    """
    reduce: str = "doubling"
    """Reductions: all-gathers backwards, or every block straight to who combines it."""
    cards: str = "device"
    """Whether each device has its own links, or those between nodes are shared by a node's devices.

    A shared link carries as much as those of all devices together.
    """

    def __post_init__(self) -> None:
        for what, given, known in (
            ("gather", self.gather, WAYS),
            ("reduce", self.reduce, WAYS),
            ("cards", self.cards, CARDS),
        ):
            if given not in known:
                raise InputError(f"{what} {given!r} is not one of {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class PeerGroup:
    """The peers of a device are all that differ from it along these axes only."""

    axes: tuple[int, ...]

    def latest(self, times: Any) -> Any:
        """For every device the greatest value among its peers, itself among them."""
        return np.broadcast_to(times.max(axis=self.axes, keepdims=True), times.shape)

    def of(self, device: int, shape: tuple[int, ...]) -> Ints:
        """The peers of one device, by their numbers, itself among them."""
        place = np.unravel_index(device, shape)
        index = tuple(slice(None) if a in self.axes else place[a] for a in range(len(shape)))
        return np.arange(prod(shape), dtype=np.int64).reshape(shape)[index].reshape(-1)


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Peers that follow no pattern, as pairs of devices: each is listed in both directions."""

    one: Ints
    other: Ints

    def latest(self, times: Any) -> Any:
        """For every device the greatest value among its peers, itself among them."""
        flat = times.reshape(-1)
        latest = flat.copy()
        np.maximum.at(latest, self.one, flat[self.other])
        return latest.reshape(times.shape)

    def of(self, device: int, shape: tuple[int, ...]) -> Ints:
        """The peers of one device, by their numbers, itself among them."""
        del shape
        return np.append(self.other[self.one == device], device)


Peers = PeerGroup | Pairs


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """What every device receives and sends: bytes by level and device, in the mesh's shape."""

    received: Ints
    sent: Ints
    rounds: int
    """How many messages follow one another: the latency is paid so often."""
    peers: Peers
    kind: Collective = "all_gather"


def gather_phases(
    mesh: Mesh, levels: Sequence[Level], axes: Sequence[int], own: Ints, way: str
) -> list[Phase]:
    """An all-gather of everybody's `own` bytes, level by level from the outermost in, or directly.

    On each level devices pass on what they hold among those that differ only there: around a ring
    in the order of their numbers, or `doubling` what they have.
    """
    if way == "direct":
        return [_gather_directly(mesh, levels, axes, own)]
    phases: list[Phase] = []
    held = own
    for number, level in enumerate(levels):
        along = tuple(a for a in level.axes if a in axes)
        if not along:
            continue
        total = np.broadcast_to(held.sum(axis=along, keepdims=True), held.shape)
        received = np.zeros((len(levels), *own.shape), dtype=np.int64)
        sent = np.zeros_like(received)
        received[number], sent[number] = total - held, total - _of_next(held, along)
        rounds = rounds_of(way, [mesh.sizes[a] for a in along])
        phases.append(Phase(received, sent, rounds, PeerGroup(along)))
        held = total
    return phases


def reduce_phases(
    mesh: Mesh, levels: Sequence[Level], axes: Sequence[int], own: Ints, way: str
) -> list[Phase]:
    """A reduce-scatter that leaves everybody `own` bytes: the all-gather of them, backwards."""
    return [
        Phase(phase.sent, phase.received, phase.rounds, phase.peers, "reduce_scatter")
        for phase in reversed(gather_phases(mesh, levels, axes, own, way))
    ]


def _gather_directly(mesh: Mesh, levels: Sequence[Level], axes: Sequence[int], own: Ints) -> Phase:
    """An all-gather in which everybody sends its `own` bytes to each of the others at once."""
    received = np.zeros((len(levels), *own.shape), dtype=np.int64)
    sent = np.zeros_like(received)
    inner = own  # what devices have that agree on all levels but the inner ones
    count = 1
    for number in reversed(range(len(levels))):
        along = tuple(a for a in levels[number].axes if a in axes)
        if along:
            total = np.broadcast_to(inner.sum(axis=along, keepdims=True), own.shape)
            ways = pieces_by(mesh, along)
            received[number] = total - inner
            sent[number] = own * count * (ways - 1)
            inner, count = total, count * ways
    return Phase(received, sent, 1, PeerGroup(tuple(axes)))


def _of_next(values: Ints, along: tuple[int, ...]) -> Ints:
    """For every device the value of the next one around its ring, in the order of numbers."""
    last = tuple(range(values.ndim - len(along), values.ndim))
    rings = np.moveaxis(values, along, last)
    turned = np.roll(rings.reshape(*rings.shape[: last[0]], -1), -1, axis=-1)
    return np.moveaxis(turned.reshape(rings.shape), last, along)


_ROWS = 1 << 20  # elements of a table of pairs that is worked on at once


def move_phases(
    mesh: Mesh,
    levels: Sequence[Level],
    held: Tiling,
    wanted: Tiling,
    item: int,
    way: str,
    peers: Peers | None = None,
    first: int = 0,
) -> list[Phase]:
    """A move level by level from the outermost in, or directly; its peers are found if not given.

    Devices that want the same block share what comes in from outside, and hand it on. Only the
    first ones along the axes `first` want anything.
    """
    taken, given, ends = _amounts(mesh, levels, held, wanted, item, first)
    cuts = [held.cut], [wanted.cut]
    if way == "direct":
        received, sent = (each.reshape(-1, *mesh.sizes) for each in (taken, given))
        return [Phase(received, sent, 1, peers or _pairs(ends), "point_to_point")]
    among = [int(sharers(mesh, *cuts, level.axes[-1] + 1)[0, 0]) for level in levels]
    if held.split or wanted.split or first:
        among = [1] * len(among)
    if peers is None:
        gathered = [a for a in range(len(mesh.sizes)) if fetched_by(*cuts, a)["all_gather"][0, 0]]
        peers = _pairs([*ends, _handed_on(mesh, gathered)] if max(among) > 1 else ends)
    taken, given = (_shared_out(each, among) for each in (taken, given))
    phases: list[Phase] = []
    for number, level in enumerate(levels):
        received, sent = np.zeros((2, len(levels), *mesh.sizes), dtype=np.int64)
        received[number], sent[number] = (e[number].reshape(mesh.sizes) for e in (taken, given))
        if received.any():
            along = [crossed(*cuts, axis)[0, 0] for axis in level.axes]
            rounds = max(rounds_of(way, [mesh.sizes[axis] for axis in level.axes], along), 1)
            kinds = fetched_by(*cuts, level.axes[0])
            kind: Collective = next(kind for kind in FETCHES if kinds[kind][0, 0])
            phases.append(Phase(received, sent, rounds, peers, kind))
    return phases


def _amounts(
    mesh: Mesh, levels: Sequence[Level], held: Tiling, wanted: Tiling, item: int, first: int
) -> tuple[Ints, Ints, list[tuple[Ints, Ints]]]:
    """The bytes that devices take and give on each level, and who takes from whom."""
    devices = mesh.devices
    taken = np.zeros((len(levels), devices), dtype=np.int64)
    given = np.zeros_like(taken)
    ends: list[tuple[Ints, Ints]] = []
    takes = np.isin(np.arange(devices), first_along(mesh, first))
    for rows, table in _tables(mesh, held, wanted):
        table = table * item * takes[rows, None]
        to, source = np.nonzero(table)
        ends.append((to + rows[0], source))
        alike = np.ones(table.shape, dtype=bool)
        for number, level in enumerate(levels):
            place: Ints = np.zeros(devices, dtype=np.int64)  # a number for the coordinates on it
            for axis in level.axes:
                place = place * mesh.sizes[axis] + mesh.coordinates[axis]
            apart = place[rows, None] != place[None, :]
            crossing = np.where(alike & apart, table, 0)
            taken[number, rows] = crossing.sum(axis=1)
            given[number] += crossing.sum(axis=0)
            alike &= ~apart
    return taken, given, ends


def _shared_out(amounts: Ints, among: Sequence[int]) -> Ints:
    """Bytes by level, where so many devices inside each level share what comes across it."""
    shares = amounts.cumsum(axis=0) // np.array(among, dtype=np.int64)[:, None]
    return np.diff(shares, axis=0, prepend=0)


def _handed_on(mesh: Mesh, axes: Sequence[int]) -> tuple[Ints, Ints]:
    """Every device, with each that differs from it along these axes only."""
    numbers = np.arange(mesh.devices, dtype=np.int64).reshape(mesh.sizes)
    last = tuple(range(len(mesh.sizes) - len(axes), len(mesh.sizes)))
    groups = np.moveaxis(numbers, tuple(axes), last).reshape(-1, pieces_by(mesh, tuple(axes)))
    one, other = np.broadcast_arrays(groups[:, :, None], groups[:, None, :])
    return one.ravel(), other.ravel()


def _pairs(ends: list[tuple[Ints, Ints]]) -> Pairs:
    """Pairs of receivers and senders, in both directions."""
    to = np.concatenate([one for one, _ in ends])
    source = np.concatenate([other for _, other in ends])
    return Pairs(np.concatenate([to, source]), np.concatenate([source, to]))


def _tables(mesh: Mesh, held: Tiling, wanted: Tiling) -> Iterator[tuple[Ints, Ints]]:
    """Some receivers at a time: the elements that each of them receives from every device."""
    some = max(_ROWS // mesh.devices, 1)
    is_plain_move = not held.split and not wanted.split and is_plain(held.cut)
    elements_of = _overlaps if is_plain_move else _listed
    for first in range(0, mesh.devices, some):
        rows = np.arange(first, min(first + some, mesh.devices), dtype=np.int64)
        elements = elements_of(mesh, held, wanted, rows)
        elements[np.arange(len(rows)), rows] = 0  # what a device holds itself
        yield rows, elements


def _overlaps(mesh: Mesh, held: Tiling, wanted: Tiling, rows: Ints) -> Ints:
    """Blocks come from the device that agrees with the receiver wherever there is a choice."""
    elements = np.ones((len(rows), mesh.devices), dtype=np.int64)
    for ours, theirs in zip(held.cut, wanted.cut, strict=True):
        (low, high), (first, last) = interval(mesh, ours), interval(mesh, theirs)
        ends = np.minimum(high[None, :], last[rows, None])
        elements *= np.maximum(ends - np.maximum(low[None, :], first[rows, None]), 0)
    for axis in axes_in(mesh, replicated_axes(mesh, held.cut)):
        place = mesh.coordinates[axis]
        elements *= place[rows, None] == place[None, :]
    return elements


def _listed(mesh: Mesh, held: Tiling, wanted: Tiling, rows: Ints) -> Ints:
    """The same where tiles overlap or are shared out, as the program lists it."""
    elements = np.zeros((len(rows), mesh.devices), dtype=np.int64)
    for row, device in enumerate(rows):
        for block in received(mesh, held, wanted, int(device)):
            elements[row, block.peer] += volume(block.box)
    return elements

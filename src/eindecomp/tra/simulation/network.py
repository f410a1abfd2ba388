"""The links of a machine, and the phases in which exchanges use them, level by level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from eindecomp.errors import InputError
from eindecomp.layout.boxes import volume
from eindecomp.layout.cut import axes_in, interval, is_plain, pieces_by
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import Tiling, replicated_axes
from eindecomp.planner.costs.machine import Machine
from eindecomp.solve.problem.arrays import Ints
from eindecomp.tra.program.device_row import received

GATHERS = ("ring", "doubling", "direct")
REDUCES = ("direct", "ring", "doubling")
CARDS = ("device", "node")


@dataclass(frozen=True, slots=True)
class Network:
    """How collectives are made, and who shares a link."""

    gather: str = "ring"
    """All-gathers: level by level from the outermost in, or all messages side by side.

    On a level of n devices, a ring has n - 1 rounds; doubling what everybody has takes log2 n.
    """
    reduce: str = "direct"
    """Reductions: every block straight to who combines it, in the plan's order, or by levels.

    The latter are all-gathers backwards; they combine in an order of their own.
    """
    cards: str = "device"
    """Whether each device has its own links, or those between nodes are shared by a node's devices.

    A shared link carries as much as those of all devices together.
    """

    def __post_init__(self) -> None:
        for what, given, known in (
            ("gather", self.gather, GATHERS),
            ("reduce", self.reduce, REDUCES),
            ("cards", self.cards, CARDS),
        ):
            if given not in known:
                raise InputError(f"{what} {given!r} is not one of {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class Level:
    """Neighbouring axes with links that are alike."""

    axes: tuple[int, ...]
    names: tuple[str, ...]
    bandwidth: float
    latency: float

    def __str__(self) -> str:
        ends = dict.fromkeys((self.names[0], self.names[-1]))
        return "…".join(ends)


def levels_of(mesh: Mesh, machine: Machine) -> tuple[Level, ...]:
    """The levels of a mesh, outermost first.

    >>> from eindecomp.planner.costs.presets import machine_of
    >>> from eindecomp.layout.mesh import Mesh
    >>> machine = machine_of("4-gpu-servers")
    >>> [str(level) for level in levels_of(Mesh.of_axes(machine.mesh), machine)]
    ['node0…node1', 'gpu0…gpu2']
    """
    rates = [(machine.bandwidth_of(name), machine.latency_of(name)) for name in mesh.names]
    levels: list[Level] = []
    for (bandwidth, latency), run in groupby(range(len(rates)), key=rates.__getitem__):
        axes = tuple(run)
        levels.append(Level(axes, tuple(mesh.names[a] for a in axes), bandwidth, latency))
    return tuple(levels)


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
        ways = pieces_by(mesh, along)
        rounds = ways - 1 if way == "ring" else (ways - 1).bit_length()
        phases.append(Phase(received, sent, rounds, PeerGroup(along)))
        held = total
    return phases


def reduce_phases(
    mesh: Mesh, levels: Sequence[Level], axes: Sequence[int], own: Ints, way: str
) -> list[Phase]:
    """A reduce-scatter that leaves everybody `own` bytes: the all-gather of them, backwards."""
    return [
        Phase(phase.sent, phase.received, phase.rounds, phase.peers)
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
            place: Ints = np.zeros(devices, dtype=np.int64)  # a number for the coordinates on it
            for axis in level.axes:
                place = place * mesh.sizes[axis] + mesh.coordinates[axis]
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

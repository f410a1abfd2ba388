"""Phases: what devices send and receive on each level while they wait for their peers once."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eindecomp.layout.mesh import Mesh
    from eindecomp.tra.simulation.network import Level

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Group:
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
        found = flat.copy()
        np.maximum.at(found, self.one, flat[self.other])
        return found.reshape(times.shape)

    def of(self, device: int, shape: tuple[int, ...]) -> Ints:
        """The peers of one device, by their numbers, itself among them."""
        del shape
        return np.append(self.other[self.one == device], device)


Peers = Group | Pairs


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """What every device receives and sends: bytes by level and device, in the mesh's shape."""

    received: Ints
    sent: Ints
    rounds: int
    """How many messages follow one another: the latency is paid so often."""
    peers: Peers


def gather_by_levels(
    mesh: Mesh, levels: Sequence[Level], axes: Sequence[int], own: Ints, way: str
) -> list[Phase]:
    """An all-gather of everybody's `own` bytes, level by level from the outermost in.

    On each level devices pass on what they hold among those that differ only there: around a ring
    in the order of their numbers, or `doubling` what they have.
    """
    found: list[Phase] = []
    held = own
    for number, level in enumerate(levels):
        along = tuple(a for a in level.axes if a in axes)
        if not along:
            continue
        total = np.broadcast_to(held.sum(axis=along, keepdims=True), held.shape)
        received = _on_level(len(levels), number, total - held)
        sent = _on_level(len(levels), number, total - _of_next(held, along))
        ways = prod(mesh.sizes[a] for a in along)
        rounds = ways - 1 if way == "ring" else (ways - 1).bit_length()
        found.append(Phase(received, sent, rounds, Group(along)))
        held = total
    return found


def reduce_by_levels(
    mesh: Mesh, levels: Sequence[Level], axes: Sequence[int], own: Ints, way: str
) -> list[Phase]:
    """A reduce-scatter that leaves everybody `own` bytes: the all-gather of them, backwards."""
    return [
        Phase(phase.sent, phase.received, phase.rounds, phase.peers)
        for phase in reversed(gather_by_levels(mesh, levels, axes, own, way))
    ]


def gather_directly(mesh: Mesh, levels: Sequence[Level], axes: Sequence[int], own: Ints) -> Phase:
    """An all-gather in which everybody sends its `own` bytes to each of the others at once."""
    received = np.zeros((len(levels), *own.shape), dtype=np.int64)
    sent = np.zeros_like(received)
    inner = own  # what devices have that agree on all levels but the inner ones
    count = 1
    for number in reversed(range(len(levels))):
        along = tuple(a for a in levels[number].axes if a in axes)
        if along:
            total = np.broadcast_to(inner.sum(axis=along, keepdims=True), own.shape)
            ways = prod(mesh.sizes[a] for a in along)
            received[number] = total - inner
            sent[number] = own * count * (ways - 1)
            inner, count = total, count * ways
    return Phase(received, sent, 1, Group(tuple(axes)))


def reduce_directly(mesh: Mesh, levels: Sequence[Level], axes: Sequence[int], own: Ints) -> Phase:
    """A reduce-scatter in which everybody sends each of the others the block that it combines."""
    backwards = gather_directly(mesh, levels, axes, own)
    return Phase(backwards.sent, backwards.received, 1, backwards.peers)


def _of_next(values: Ints, along: tuple[int, ...]) -> Ints:
    """For every device the value of the next one around its ring, in the order of numbers."""
    last = tuple(range(values.ndim - len(along), values.ndim))
    rings = np.moveaxis(values, along, last)
    turned = np.roll(rings.reshape(*rings.shape[: last[0]], -1), -1, axis=-1)
    return np.moveaxis(turned.reshape(rings.shape), last, along)


def _on_level(levels: int, number: int, values: Ints) -> Ints:
    found = np.zeros((levels, *values.shape), dtype=np.int64)
    found[number] = values
    return found

"""What exchanging data takes: one model of it, for objective `time` and for the simulator.

Neighbouring mesh axes whose links are alike are a *level*, and data passes one level after another.
Devices that agree on all axes down to some axis form a *group*. What a group needs and lacks comes
into it once: devices that want the same block, since they differ only along axes that cut what is
held and not what is needed, receive equal shares of it from outside and hand these on inside. So an
all-gather goes from the outermost level in, each block coming to a server once; in an all-to-all no
two devices want the same block. A reduce-scatter is the all-gather of its results, backwards.

On a level, the axes to be crossed join n devices, whose messages follow one another in *rounds*
with a latency each: n - 1 of them around a `"ring"`, or log2 n, an axis at a time, where devices
exchange all they have (`"doubling"`). Both carry the same bytes. An axis for which seconds were
measured is a level of its own, and its curve has its latencies in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from math import inf
from typing import Any

import numpy as np

from eindecomp.errors import UnsolvedError
from eindecomp.layout.cut import Cut, nests_outward, outer_cut, used_axes
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.overlaps import most_entering
from eindecomp.planner.costs.machine import COLLECTIVES, RING, Collective, Curve, Machine
from eindecomp.solve.clock import has_passed
from eindecomp.solve.problem.arrays import Floats, Ints, Mask

_SMALL = 1 << 10  # cells up to which a table is kept
_CELLS = 1 << 24  # those on all devices that are counted before a look at the clock


@dataclass(frozen=True, slots=True)
class Level:
    """Neighbouring axes with links that are alike."""

    axes: tuple[int, ...]
    names: tuple[str, ...]
    bandwidth: float
    latency: float
    """Of a message, with the overhead of a task."""
    curves: Mapping[Collective, Curve] = field(default_factory=dict[Collective, Curve])
    """Measured seconds, where there are any."""

    def start(self, kind: Collective) -> float:
        """The seconds before the first byte of a message arrives; a curve has them in it."""
        return 0.0 if kind in self.curves else self.latency

    def carried(self, kind: Collective, size: Any) -> Any:
        """The seconds that a link is busy with so many bytes."""
        if (curve := self.curves.get(kind)) is None:
            return size / self.bandwidth
        return np.where(size > 0, curve.seconds(size), 0.0)

    def seconds(self, kind: Collective, size: Any, rounds: Any) -> Any:
        """The seconds in which every device receives so many bytes in so many rounds."""
        return rounds * self.start(kind) + self.carried(kind, size)

    def __str__(self) -> str:
        ends = dict.fromkeys((self.names[0], self.names[-1]))
        return "…".join(ends)


def levels_of(mesh: Mesh, machine: Machine) -> tuple[Level, ...]:
    """The levels of a mesh, outermost first.

    >>> from eindecomp.planner.costs.presets import machine_of
    >>> machine = machine_of("4-gpu-servers")
    >>> [str(level) for level in levels_of(Mesh.of_axes(machine.mesh), machine)]
    ['node0…node1', 'gpu0…gpu2']
    """
    levels: list[Level] = []
    alike = [
        (machine.bandwidth_of(name), machine.latency_of(name), curves and (name, curves))
        for name in mesh.names
        for curves in [_curves_of(machine, name)]
    ]
    for (bandwidth, latency, _), run in groupby(range(len(alike)), key=alike.__getitem__):
        axes = tuple(run)
        names = tuple(mesh.names[a] for a in axes)
        curves = _curves_of(machine, names[0])
        levels.append(Level(axes, names, bandwidth, latency + machine.task_overhead, curves))
    return tuple(levels)


def _curves_of(machine: Machine, axis: str) -> dict[Collective, Curve]:
    curves: dict[Collective, Curve] = {}
    for kind in COLLECTIVES:
        if (curve := machine.curve_of(kind, axis)) is not None:
            curves[kind] = curve
    return curves


def rounds_of(way: str, sizes: Sequence[int], crossed: Sequence[Any] | None = None) -> Any:
    """How many messages follow one another among devices along axes of these sizes.

    `crossed` says, for each axis, where it is crossed at all.

    >>> rounds_of("ring", (2, 2, 2)), rounds_of("doubling", (2, 2, 2))
    (7, 3)
    """
    where = [True] * len(sizes) if crossed is None else crossed
    if way == RING:
        ways: Any = 1
        for size, used in zip(sizes, where, strict=True):
            ways = ways * (1 + (size - 1) * used)
        return ways - 1
    return sum((size - 1).bit_length() * used for size, used in zip(sizes, where, strict=True))


def received(
    mesh: Mesh,
    levels: Sequence[Level],
    held: Sequence[Cut],
    needed: Sequence[Cut],
    deadline: float = inf,
) -> tuple[Floats, ...]:
    """For each level, the elements that the fullest device receives on it: tables held × needed.

    Raises `UnsolvedError` if a large one is not made by the deadline.
    """
    ends = tuple(level.axes[-1] + 1 for level in levels)
    if len(held) * len(needed) <= _SMALL:
        return _small_received(mesh, ends, tuple(held), tuple(needed))
    return _received(mesh, ends, tuple(held), tuple(needed), deadline)


def _received(
    mesh: Mesh,
    ends: tuple[int, ...],
    held: tuple[Cut, ...],
    needed: tuple[Cut, ...],
    deadline: float = inf,
) -> tuple[Floats, ...]:
    tables: list[Floats] = []
    outer: tuple[int, Any] = 0, np.ones((len(held), len(needed)))
    for axes in ends:
        inner = axes, sharers(mesh, held, needed, axes)
        # Cuts that differ only in how axes further in cut are alike, if those are the innermost.
        alike = {
            (outer_cut(cut, axes) if nests_outward(cut, axes) else cut, used_axes(cut) >> axes): i
            for i, cut in enumerate(held)
        }
        keys = {cut: place for place, cut in enumerate(alike)}
        rows = list(alike.values())
        of = [
            keys[outer_cut(c, axes) if nests_outward(c, axes) else c, used_axes(c) >> axes]
            for c in held
        ]
        step = max(1, _CELLS // (len(needed) * mesh.devices))
        parts: list[Floats] = []
        for part in (rows[at : at + step] for at in range(0, len(rows), step)):
            if has_passed(deadline):
                raise UnsolvedError("time is up")
            groups = [(count, among[part]) for count, among in (outer, inner)]
            parts.append(most_entering(mesh, [held[i] for i in part], needed, *groups))
        tables.append(np.concatenate(parts)[of])
        outer = inner
    return tuple(tables)


_small_received = lru_cache(maxsize=1 << 11)(_received)


def sharers(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut], axes: int) -> Ints:
    """How many devices that agree on so many outer axes share what comes to them: held × needed."""
    count = np.ones((len(held), len(needed)), dtype=np.int64)
    for axis in range(axes, len(mesh.sizes)):
        gathers = fetched_by(held, needed, axis)["all_gather"]
        count = count * np.where(gathers, mesh.sizes[axis], 1)
    return count


def crossed(held: Sequence[Cut], needed: Sequence[Cut], axis: int) -> Mask:
    """Where an axis has to be crossed: it cuts what is held, but not as it cuts what is needed."""
    places: dict[object, int] = {}
    before, after = (
        np.array([places.setdefault(_place(cut, axis), len(places)) for cut in cuts])
        for cuts in (held, needed)
    )
    return (before[:, None] != after[None]) & (before[:, None] != places.get(None, -1))


def _place(cut: Cut, axis: int) -> object:
    """The dimension that an axis cuts, and the axes outside it there; None if it cuts none."""
    for dimension, span in enumerate(cut):
        if axis in span.axes:
            outside = span.axes[: span.axes.index(axis) + 1]
            return dimension, span._replace(axes=outside)
    return None


def fetched_by(held: Sequence[Cut], needed: Sequence[Cut], axis: int) -> dict[Collective, Mask]:
    """For each held and each needed cut, what fetching along an axis is.

    An axis that cuts the held layout but not the needed one gathers. One that cuts another
    dimension than before exchanges. Anything else goes from device to device.
    """
    before = np.array([_cut_by(cut, axis) for cut in held], dtype=np.int64)[:, None]
    after = np.array([_cut_by(cut, axis) for cut in needed], dtype=np.int64)[None]
    gathers = (before >= 0) & (after < 0)
    exchanges = (before >= 0) & (after >= 0) & (before != after)
    return {
        "all_gather": gathers,
        "all_to_all": exchanges,
        "point_to_point": ~(gathers | exchanges),
    }


def _cut_by(cut: Cut, axis: int) -> int:
    """The dimension that an axis cuts, or -1."""
    return next((d for d, span in enumerate(cut) if axis in span.axes), -1)

"""Objective "time": seconds on a machine, kernel calls by the roofline, movement axis by axis.

An element that a device needs comes from the nearest device that holds it: it crosses axis j if
that device differs from this one at axis j but at no axis outside it. Bytes are those of the
average device.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.graph.work import tile_operations
from eindecomp.planner.costs.infinite import infinite_where
from eindecomp.planner.costs.price import held_elements
from eindecomp.planner.space.cut import Cut, nests_outward, outer_cut
from eindecomp.planner.space.overlaps import covers, overlaps_within, totals
from eindecomp.planner.space.tiles import dim_parts, tile_sides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.costs.machine import Machine
    from eindecomp.planner.space.choices import Choices
    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.planner.space.view import View

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PriceInSeconds:
    """The seconds that everything takes, one thing after another."""

    mesh: Mesh
    machine: Machine

    def on(self, mesh: Mesh) -> PriceInSeconds:
        """The same prices on another mesh."""
        return PriceInSeconds(mesh, self.machine)

    def fetch(self, held: Sequence[Cut], needed: Sequence[Cut], item: int) -> Any:
        """Bytes over bandwidth, axis by axis, and a latency for each axis that is crossed."""
        total = totals(self.mesh, needed)[None]
        seconds = np.zeros((len(held), len(needed)))
        before = np.zeros(seconds.shape)
        for axis in range(len(self.mesh.sizes)):
            missing = total - self._near(held, needed, axis + 1)
            crossing = np.maximum(missing - before, 0) * item / self.mesh.devices
            seconds += np.where(crossing > 0, self._link(axis, crossing, 1), 0.0)
            before = np.maximum(before, missing)
        return infinite_where(~covers(held, needed), seconds)

    def _near(self, held: Sequence[Cut], needed: Sequence[Cut], axes: int) -> Any:
        """What devices find on those that have the same coordinates along some outer axes."""
        # Cuts that differ only in inner axes are alike here, if those are also the innermost.
        keys = [outer_cut(cut, axes) if nests_outward(cut, axes) else cut for cut in held]
        distinct = {cut: i for i, cut in enumerate(dict.fromkeys(keys))}
        table = overlaps_within(self.mesh, list(distinct), needed, axes)
        return table[[distinct[key] for key in keys]]

    def reduce_scatter(self, choices: Choices, elements: int, partial: int, item: int) -> Any:
        """Reduce-scatters from the innermost axis out, then all-gathers over replicating axes."""
        seconds = np.zeros(choices.reduced.shape)
        aggregated = set(choices.view.aggregated)
        out = [i for i in range(len(choices.view.labels)) if i not in aggregated]
        for (a, h), places in choices.places.items():
            size = elements * partial / max(int(choices.parts[a, out].prod()), 1)
            summed = sorted(x for i in aggregated for x in choices.assignments[a][i])
            for axis in reversed(summed):
                ways = self.mesh.sizes[axis]
                seconds[a, h] += self._link(axis, size * (ways - 1) / ways, ways - 1)
                size /= ways
            size *= item / partial
            scattered = {axis for own in places for axis in own}
            for axis in (axis for axis in summed if axis not in scattered):
                ways = self.mesh.sizes[axis]
                seconds[a, h] += self._link(axis, size * (ways - 1), ways - 1)
                size *= ways
        return infinite_where(choices.reduced < 0, seconds)

    def compute(self, vertex: Vertex, choices: Choices, items: tuple[int, ...]) -> Any:
        """The longer of computing the largest tile and of reading and writing its memory."""
        view, parts = choices.view, choices.parts
        sizes = np.array(view.sizes, dtype=np.int64)
        sides = (-(-sizes // parts)).astype(np.float64)
        moved = tile_sides(view.output, dim_parts(view, view.output, parts)).prod(axis=1)
        traffic = moved.astype(np.float64) * vertex.dtype.itemsize
        for dims, item in zip(view.reads, items, strict=True):
            if dims is not None:
                tile = tile_sides(dims, dim_parts(view, dims, parts)).prod(axis=1)
                traffic = traffic + tile.astype(np.float64) * item
        tile = {label: sides[:, k] for k, label in enumerate(view.labels)}
        work = tile_operations(vertex.op, tile)
        return np.maximum(work / self.machine.flops, traffic / self.machine.memory_bandwidth)

    def held(self, cuts: Sequence[Cut], item: int) -> Any:
        """As for bytes."""
        return item * held_elements(self.mesh, cuts)

    def least(self, vertex: Vertex, view: View, items: tuple[int, ...]) -> float:
        """The least seconds that computing a vertex can take: devices share it equally."""
        work = float(tile_operations(vertex.op, dict(zip(view.labels, view.sizes, strict=True))))
        traffic = float(vertex.elements * vertex.dtype.itemsize)
        for dims, item in zip(view.reads, items, strict=True):
            labels = [dim.label for dim in dims or () if dim.label is not None]
            if dims is not None and len(set(labels)) == len(labels):  # little is read of a diagonal
                traffic += float(prod(dim.stop - dim.start for dim in dims)) * item
        most = max(work / self.machine.flops, traffic / self.machine.memory_bandwidth)
        return most / self.mesh.devices

    def _link(self, axis: int, size: Any, messages: int) -> Any:
        name = self.mesh.names[axis]
        latency = self.machine.latency_of(name) * messages
        return latency + size / self.machine.bandwidth_of(name)

"""What a device must hold, step by step: one vertex is computed after another.

At its step a vertex holds the pieces it reads and the tile it makes; its result is held from then
to its last reader, outputs to the end; inputs are held throughout. Each amount is that of the
fullest device, and their sum is kept under the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.graph.ops import Input
from eindecomp.planner.box import volumes
from eindecomp.planner.network import agreement
from eindecomp.planner.paper import dim_parts, tile_sides
from eindecomp.planner.traffic import Site, Traffic, partial_item

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eindecomp.planner.box import Cut

    Ints = NDArray[np.int64]


def add_usage(traffic: Traffic) -> int:
    """Say what every choice holds and when; what is held whatever is chosen.

    The model must keep homes apart from assignments.
    """
    steps = {name: t for t, name in enumerate(traffic.sites)}
    outputs = {vertex.name for vertex in traffic.graph.outputs}
    last = dict(steps)
    for reader, t in steps.items():
        last.update({name: t for name in traffic.graph[reader].inputs if name in steps})
    end = len(steps)
    for name, site in traffic.sites.items():
        stop = end if name in outputs else last[name] + 1
        item = site.vertex.dtype.itemsize
        now = steps[name]
        traffic.network.use(traffic.assign[name], _working(traffic, site), now, now + 1)
        homes = item * _fullest(traffic, site.choices.homes)
        traffic.network.use(traffic.home[name], homes, now + 1, stop)
        if name in traffic.further:
            sizes = np.append(0, item * _fullest(traffic, site.further))
            traffic.network.use(traffic.further[name], sizes, now + 1, stop)
        _add_inputs(traffic, site, end)
    return _stored(traffic, end)


def _fullest(traffic: Traffic, cuts: Sequence[Cut]) -> Ints:
    return volumes(traffic.price.mesh, cuts).max(axis=1)


def _working(traffic: Traffic, site: Site) -> Ints:
    """The pieces read from others and the tile made, for each choice of an assignment."""
    view, parts = site.choices.view, site.choices.parts
    tile = tile_sides(view.output, dim_parts(view, view.output, parts)).prod(axis=1)
    total = tile * partial_item(site.vertex)
    for k, reads in enumerate(site.choices.reads):
        source = traffic.graph[site.vertex.inputs[k]]
        held = isinstance(source.op, Input) and not _is_fetched(traffic, source.name)
        if reads is not None and not held:
            total = total + source.dtype.itemsize * _fullest(traffic, reads.cuts)[reads.of]
    return np.repeat(total, 1 << len(site.shared))


def _is_fetched(traffic: Traffic, name: str) -> bool:
    return traffic.inputs == "sharded" or name in traffic.pinned


def _add_inputs(traffic: Traffic, site: Site, end: int) -> None:
    """A variable for each free input that is read: its piece is held throughout."""
    flags = 1 << len(site.shared)
    for k, reads in enumerate(site.choices.reads):
        source = traffic.graph[site.vertex.inputs[k]]
        if reads is None or not isinstance(source.op, Input) or _is_fetched(traffic, source.name):
            continue
        held = traffic.network.variable(np.zeros(len(reads.cuts), dtype=np.int64))
        usage = source.dtype.itemsize * _fullest(traffic, reads.cuts)
        traffic.network.use(held, usage, 0, end)
        places: list[int] = np.repeat(reads.of, flags).tolist()

        def table(places: list[int] = places, size: int = len(reads.cuts)) -> Any:
            return agreement(places, size)

        key = (id(site.choices), k, flags, "held")
        traffic.network.edge(traffic.assign[site.vertex.name], held, key, table)


def _stored(traffic: Traffic, end: int) -> int:
    """Inputs whose share of memory does not depend on any choice; pinned ones that may vary."""
    total = 0
    for vertex in traffic.graph.inputs:
        item = vertex.dtype.itemsize
        if vertex.name in traffic.pinned:
            sizes = item * _fullest(traffic, traffic.pinned[vertex.name])
            traffic.network.use(traffic.home[vertex.name], sizes, 0, end)
        elif traffic.inputs == "sharded":
            total += item * -(-vertex.elements // traffic.price.mesh.devices)
    return total

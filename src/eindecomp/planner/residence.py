"""What a device must hold, step by step: one vertex is computed after another.

At its step a vertex holds the pieces it reads, as copies beside their homes, and the tile it makes;
its result is held from then to its last reader, outputs to the end. Inputs are held throughout: one
copy that readers share, and one of its own for a reader that wants another piece. Each amount is
that of the fullest device, and their sum is kept under the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eindecomp.graph.ops import Input
from eindecomp.planner.box import volumes
from eindecomp.planner.network import infinite_where
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
    _add_inputs(traffic, end)
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


def _add_inputs(traffic: Traffic, end: int) -> None:
    """For each free input the piece that is shared, and for each reader whether it shares it."""
    readers: dict[str, list[tuple[Site, int]]] = {}
    for site in traffic.sites.values():
        for k, name in enumerate(site.vertex.inputs):
            is_input = isinstance(traffic.graph[name].op, Input)
            if site.choices.reads[k] and is_input and not _is_fetched(traffic, name):
                readers.setdefault(name, []).append((site, k))
    for name, reading in readers.items():
        item = traffic.graph[name].dtype.itemsize
        reads = [site.choices.reads[k] for site, k in reading]
        cuts = list(dict.fromkeys(cut for each in reads if each for cut in each.cuts))
        sizes = item * _fullest(traffic, cuts)
        common = traffic.network.variable(np.zeros(len(cuts) + 1, dtype=np.int64))
        traffic.network.use(common, np.append(sizes, 0), 0, end)
        for site, k in reading:
            _add_reader(traffic, site, k, cuts, sizes, common, end)


def _add_reader(
    traffic: Traffic, site: Site, k: int, cuts: list[Cut], sizes: Ints, common: int, end: int
) -> None:
    """A variable for what one reader holds: choice c is the shared piece c, others its own."""
    reads = site.choices.reads[k]
    assert reads is not None  # noqa: S101 - only inputs that are read come here
    n = len(cuts)
    own = traffic.network.variable(np.zeros(2 * n, dtype=np.int64))
    traffic.network.use(own, np.append(np.zeros(n, dtype=np.int64), sizes), 0, end)
    place = np.array([cuts.index(cut) for cut in reads.cuts], dtype=np.int64)
    needs = np.repeat(place[reads.of], 1 << len(site.shared))
    pieces = np.tile(np.arange(n), 2)
    zero = np.zeros((1, 1), dtype=np.int64)
    key = (id(site.choices), k, len(site.shared), tuple(cuts))
    traffic.network.edge(
        traffic.assign[site.vertex.name], own, (*key, "held"),
        lambda: infinite_where(needs[:, None] != pieces[None], zero),
    )  # fmt: skip
    shares = np.arange(2 * n) < n
    traffic.network.edge(
        common, own, (*key, "common"),
        lambda: infinite_where(
            shares[None] & (np.arange(n + 1)[:, None] != pieces[None]), zero
        ),
    )  # fmt: skip


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

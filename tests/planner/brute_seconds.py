"""Seconds of one plan, worked out element by element and device by device.

Written from the definitions alone, for graphs of EinSums on small meshes.
"""

from __future__ import annotations

from itertools import pairwise, product
from math import exp, log, prod
from typing import TYPE_CHECKING

from brute_bytes import boxes

from eindecomp.graph.work import operations_per_point, tile_functions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from brute_bytes import Layout

    from eindecomp import Graph, Machine, Vertex
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.space.choices import Decision, Layouts


def seconds_of(
    graph: Graph,
    mesh: Mesh,
    machine: Machine,
    decisions: Mapping[str, Decision],
    given: Mapping[str, Layouts],
) -> float:
    """What a plan takes: kernel calls, and what fetches and reductions take beyond them."""
    every = {name: d.layouts for name, d in decisions.items()} | dict(given)
    lies = {name: [layout_of(cut) for cut in own.cuts] for name, own in every.items()}
    total = 0.0
    for name, own in lies.items():
        if len(own) > 1:
            total += fetched(mesh, machine, graph[name], own[0], own[1])
    for name, decision in decisions.items():
        vertex = graph[name]
        axes_of = dict(zip(graph.label_sizes(vertex), decision.assignment, strict=True))
        kernel = computed(graph, mesh, machine, vertex, axes_of)
        times = [
            min(
                fetched(mesh, machine, graph[source], held, tuple(axes_of[x] for x in labels))
                for held in lies[source]
            )
            for source, labels in zip(vertex.inputs, vertex.op.inputs, strict=True)
            if source in lies
        ]
        summed = sorted(a for x, own in axes_of.items() if x not in vertex.labels for a in own)
        if summed:
            scattered = {axis for own in decision.places for axis in own}
            times.append(reduced(mesh, machine, vertex, axes_of, summed, scattered))
        share = machine.overlap * kernel / max(len(times), 1)
        total += kernel + machine.task_overhead + sum(max(0.0, t - share) for t in times)
    return total


def layout_of(cut: Sequence[object]) -> Layout:
    return tuple(span.axes for span in cut)


def message(machine: Machine, kind: str, axis: str, size: float, rounds: int) -> float:
    """One device receives so many bytes along an axis."""
    curves = machine.transfers.get(kind, {})
    curve = curves.get(axis, curves.get("*"))
    if curve is None:
        latency, bandwidth = link(machine, axis)
        return rounds * (machine.task_overhead + latency) + size / bandwidth
    before = (0.0, curve.points[0][1])
    for point in curve.points:
        if size <= point[0]:
            part = (size - before[0]) / (point[0] - before[0])
            return before[1] + part * (point[1] - before[1])
        before = point
    return size / before[0] * before[1]


def link(machine: Machine, axis: str) -> tuple[float, float]:
    latency, bandwidth = (
        given[axis] if isinstance(given, dict) else given
        for given in (machine.latency, machine.bandwidth)
    )
    return latency, bandwidth


def levels(mesh: Mesh, machine: Machine) -> list[list[int]]:
    """Neighbouring axes with the same links; those that were measured are alone."""
    found: list[list[int]] = []
    for axis, name in enumerate(mesh.names):
        curved = any(name in own or "*" in own for own in machine.transfers.values())
        before = mesh.names[axis - 1]
        if axis and not curved and link(machine, before) == link(machine, name):
            found[-1].append(axis)
        else:
            found.append([axis])
    return found


def rounds(machine: Machine, sizes: Sequence[int]) -> int:
    """The messages that follow one another among devices along axes of these sizes."""
    if machine.rounds == "ring":
        return prod(sizes) - 1
    return sum(next(k for k in range(n) if 2**k >= n) for n in sizes)


def fetched(mesh: Mesh, machine: Machine, tensor: Vertex, held: Layout, need: Layout) -> float:
    """Each element comes from the device that agrees with this one on the most outer axes.

    Devices that differ only along axes that gather want the same: inside a level, they share what
    comes across it, and hand their shares on across the levels inside.
    """
    at = list(product(*map(range, mesh.sizes)))
    has, wants = (boxes(tensor.shape, layout, mesh.sizes) for layout in (held, need))
    kinds = [fetching(held, need, a) for a in range(len(mesh.sizes))]
    every = levels(mesh, machine)
    shares = [
        1 / prod(n for a, n in enumerate(mesh.sizes) if a > own[-1] and kinds[a] == "all_gather")
        for own in every
    ]
    most = [0.0] * len(every)
    for here, box in zip(at, wants, strict=True):
        missing = [0] * len(every)
        for element in product(*(range(*side) for side in box)):
            near = max(
                agreeing(here, there)
                for there, own in zip(at, has, strict=True)
                if all(a <= e < b for e, (a, b) in zip(element, own, strict=True))
            )
            for level, own in enumerate(every):
                missing[level] += own[-1] >= near
        entering = [0.0, *(n * share for n, share in zip(missing, shares, strict=True))]
        most = [max(n, b - a) for n, (a, b) in zip(most, pairwise(entering), strict=True)]
    seconds = 0.0
    for own, count in zip(every, most, strict=True):
        if count:
            sizes = [mesh.sizes[a] for a in own if place(held, a) not in (None, place(need, a))]
            size, turns = count * tensor.dtype.itemsize, max(rounds(machine, sizes), 1)
            seconds += message(machine, kinds[own[0]], mesh.names[own[0]], size, turns)
    return seconds


def place(layout: Layout, axis: int) -> object:
    """The dimension that an axis cuts, and the axes outside it."""
    cut = [(d, own[: own.index(axis)]) for d, own in enumerate(layout) if axis in own]
    return cut[0] if cut else None


def agreeing(one: Sequence[int], other: Sequence[int]) -> int:
    """The outer axes along which two devices have the same coordinates."""
    same = 0
    while same < len(one) and one[same] == other[same]:
        same += 1
    return same


def fetching(held: Layout, need: Layout, axis: int) -> str:
    before = [d for d, own in enumerate(held) if axis in own]
    after = [d for d, own in enumerate(need) if axis in own]
    if before and not after:
        return "all_gather"
    return "all_to_all" if before and after and before[0] != after[0] else "point_to_point"


def reduced(mesh, machine, vertex, axes_of, summed, scattered) -> float:
    """Partial results are halved, or more, along one axis after another, then gathered again."""
    tiles = prod(mesh.sizes[a] for x in vertex.labels for a in axes_of[x])
    width = 2 if vertex.dtype.name == "float16" else 1
    size = vertex.elements * vertex.dtype.itemsize * width / tiles
    seconds = 0.0
    for own in reversed(levels(mesh, machine)):
        if sizes := [mesh.sizes[a] for a in own if a in summed]:
            turns, ways = rounds(machine, sizes), prod(sizes)
            received = size / ways * (ways - 1)
            seconds += message(machine, "reduce_scatter", mesh.names[own[0]], received, turns)
            size /= ways
    size /= width
    for own in levels(mesh, machine):
        if sizes := [mesh.sizes[a] for a in own if a in summed and a not in scattered]:
            turns, ways = rounds(machine, sizes), prod(sizes)
            received = size * (ways - 1)
            seconds += message(machine, "all_gather", mesh.names[own[0]], received, turns)
            size *= ways
    return seconds


def computed(graph, mesh, machine, vertex, axes_of) -> float:
    """The largest tile, by what is computed or by what is read and written."""
    sizes = graph.label_sizes(vertex)
    tile = {x: -(-n // prod(mesh.sizes[a] for a in axes_of[x])) for x, n in sizes.items()}
    tensors = [
        (labels, graph[n]) for labels, n in zip(vertex.op.inputs, vertex.inputs, strict=True)
    ]
    tensors.append((vertex.labels, vertex))
    counts = [prod(tile[x] for x in labels) for labels, _ in tensors]
    work = operations_per_point(vertex.op) * prod(tile.values())
    speed = rate(machine, vertex, work / max(sum(counts), 1))
    traffic = sum(n * v.dtype.itemsize for n, (_, v) in zip(counts, tensors, strict=True))
    if vertex.dtype.name == "float16" and any(axes_of[x] for x in sizes if x not in vertex.labels):
        traffic += 2 * counts[-1]  # partial results are wider
    computing = work / speed
    if not isinstance(machine.flops, float):
        item = max(vertex.dtype.itemsize / 4, 1)
        computing += tile_functions(vertex.op, tile) * item / machine.flops["functions"]
    return max(computing, traffic / machine.memory_bandwidth)


def rate(machine: Machine, vertex: Vertex, intensity: float) -> float:
    flops = machine.flops
    if isinstance(flops, float):
        return flops
    slower = max(vertex.dtype.itemsize / 4, 1)
    if not (vertex.op.is_contraction and len(vertex.op.inputs) > 1):
        return flops["loops"] / slower
    known = [(2, flops["vector"]), (16, flops["thin"])]
    known += [(256, flops["large"]), (683, flops["huge"])]
    if intensity <= 2:
        return known[0][1] / slower
    for (low, one), (high, other) in pairwise(known):
        if intensity <= high:
            part = log(intensity / low) / log(high / low)
            return exp(log(one) + part * log(other / one)) / slower
    return known[-1][1] / slower

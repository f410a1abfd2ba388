"""What the fullest device holds, and the least bytes moved within a limit, by brute force.

Written from the definitions alone, with nothing of the planner in it, for graphs of EinSums that
are computed one vertex after another. A piece that is read is a copy, unless what its device holds
of the tensor anyway contains it: then it is a view.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import inf, prod
from typing import TYPE_CHECKING, NamedTuple

from brute_bound import made
from brute_bytes import (
    Axes,
    Box,
    Layout,
    assignments,
    boxes,
    homes,
    layout_of,
    partial_width,
    pieces,
    received,
    summed_axes,
    volume,
)

if TYPE_CHECKING:
    from eindecomp import Graph, Vertex
    from eindecomp.planner.plan import Plan

Shape = tuple[int, ...]


class Kept(NamedTuple):
    """One vertex: who computes what, where it lies, and what bytes leaving it there moves."""

    row: tuple[str | None, ...]
    home: Layout
    second: Layout | None
    reduced: int = 0

    @property
    def layouts(self) -> list[Layout]:
        return [self.home] if self.second is None else [self.home, self.second]


def fullest(shape: Shape, layout: Layout, axes: Axes) -> int:
    return max(map(volume, boxes(shape, layout, axes)))


def contains(outer: Box, inner: Box) -> bool:
    sides = zip(outer, inner, strict=True)
    return all(a[0] <= b[0] and b[1] <= a[1] for a, b in sides) or not volume(inner)


def copy(shape: Shape, held: Layout, need: Layout, axes: Axes) -> int:
    """The elements of the fullest device's copy where one layout is held and another is needed."""
    pairs = zip(boxes(shape, held, axes), boxes(shape, need, axes), strict=True)
    return max(0 if contains(own, need) else volume(need) for own, need in pairs)


def needs(graph: Graph, decided: dict[str, Kept]) -> dict[str, list[tuple[int, Layout]]]:
    """For each tensor the step and the layout of every reading."""
    found: dict[str, list[tuple[int, Layout]]] = {name: [] for name in graph.vertices}
    for step, (name, kept) in enumerate(decided.items()):
        vertex = graph[name]
        for source, labels in zip(vertex.inputs, vertex.op.inputs, strict=True):
            found[source].append((step, layout_of(labels, kept.row)))
    return found


def peak(graph: Graph, axes: Axes, inputs: str, decided: dict[str, Kept]) -> int:
    """The bytes of the fullest device at the fullest step, inputs stored as suits that best."""
    end = len(decided)
    held = [0] * end
    options: list[list[list[int]]] = []  # for each stored input, ways to hold it, step by step
    reading = needs(graph, decided)
    outputs = {vertex.name for vertex in graph.outputs}
    for name, vertex in graph.vertices.items():
        shape, item, reads = vertex.shape, vertex.dtype.itemsize, reading[name]
        if name in decided:
            kept, now = decided[name], list(decided).index(name)
            held[now] += item * (fullest(shape, kept.home, axes) + reducing(vertex, kept.row, axes))
            last = max([now, *(step for step, _ in reads)])
            for step in range(now + 1, end if name in outputs else last + 1):
                held[step] += item * sum(fullest(shape, own, axes) for own in kept.layouts)
            for step, need in reads:
                held[step] += item * min(copy(shape, own, need, axes) for own in kept.layouts)
        elif inputs == "free":
            # One piece for all who can use it, and a lasting copy for each who cannot.
            whole = [fullest(shape, need, axes) for _, need in reads]
            shared = [
                fullest(shape, own, axes) + sum(copy(shape, own, need, axes) for _, need in reads)
                for _, own in reads
            ]
            held = [n + item * min([sum(whole), *shared]) for n in held]
        else:
            options.append(stored(shape, item, reads, axes, end))
    ways = product(*options)
    return max(min(max(map(sum, zip(held, *way, strict=True)), default=0) for way in ways), 0)


def reducing(vertex: Vertex, row: tuple[str | None, ...], axes: Axes) -> int:
    """Elements beside the result while partial ones are reduced: they, and two of the blocks.

    A block is what one device reduces: its part of the result, or where several keep the same part
    a share of that, cut along its longest side; in whichever home that is largest.
    """
    summed = summed_axes(vertex.labels, row)
    if not summed:
        return 0
    tile = layout_of(vertex.labels, row)
    width = partial_width(vertex)
    largest = 0
    for home, _ in homes(vertex.shape, tile, summed, axes, width):
        copies = pieces(axes, [axis for axis in summed if axis not in sum(home, ())])
        for box in boxes(vertex.shape, home, axes):
            sides = sorted(high - low for low, high in box)
            longest = sides.pop() if sides else 1
            largest = max(largest, prod(sides) * -(-longest // copies))
    return width * (fullest(vertex.shape, tile, axes) + 2 * largest)


def stored(
    shape: Shape, item: int, reads: list[tuple[int, Layout]], axes: Axes, end: int
) -> list[list[int]]:
    """The ways to store an input once over all devices: evenly, or as one of its readers wants."""
    ways: list[list[int]] = []
    once = [own for _, own in reads if pieces(axes, sum(own, ())) == prod(axes)]
    for own in (None, *dict.fromkeys(once)):
        share = -(-prod(shape) // prod(axes)) if own is None else fullest(shape, own, axes)
        way = [item * share] * end
        for step, need in reads:
            lacks = fullest(shape, need, axes) if own is None else copy(shape, own, need, axes)
            way[step] += item * lacks
        ways.append(way)
    return ways


def moved(graph: Graph, axes: Axes, inputs: str, decided: dict[str, Kept]) -> int:
    """The bytes that all devices receive."""
    total = 0
    for name, reads in needs(graph, decided).items():
        shape, item = graph[name].shape, graph[name].dtype.itemsize
        if name in decided:
            kept = decided[name]
            total += item * kept.reduced
            if kept.second is not None:
                total += item * received(shape, kept.home, kept.second, axes)
            for _, need in reads:
                total += item * min(received(shape, own, need, axes) for own in kept.layouts)
        elif inputs == "sharded":
            for _, need in reads:
                total += item * (sum(map(volume, boxes(shape, need, axes))) - prod(shape))
    return total


def every_plan(graph: Graph, axes: Axes) -> Iterator[dict[str, Kept]]:
    """Every assignment, home and second layout of all vertices."""
    rows = {v.name: assignments(graph.label_sizes(v), axes) for v in made(graph)}
    for picked in product(*rows.values()):
        row_of = dict(zip(rows, picked, strict=True))
        blank = {name: Kept(row, (), None) for name, row in row_of.items()}
        reading = needs(graph, blank)
        options: list[list[Kept]] = []
        for name, row in row_of.items():
            vertex = graph[name]
            tile, summed = layout_of(vertex.labels, row), summed_axes(vertex.labels, row)
            wanted = [need for _, need in reading[name]]
            second = [None, *dict.fromkeys(wanted)] if len(wanted) > 1 else [None]
            options.append(
                [
                    Kept(row, home, other, reduced)
                    for home, reduced in homes(
                        vertex.shape, tile, summed, axes, partial_width(vertex)
                    )
                    for other in second
                ]
            )
        for chosen in product(*options):
            yield dict(zip(rows, chosen, strict=True))


def frontier(graph: Graph, axes: Axes, inputs: str) -> list[tuple[int, int]]:
    """The plans that no other beats in both memory and bytes moved: (peak, bytes), peaks rising."""
    least: dict[int, int] = {}
    for decided in every_plan(graph, axes):
        cost, most = moved(graph, axes, inputs, decided), peak(graph, axes, inputs, decided)
        least[most] = min(cost, least.get(most, cost))
    found: list[tuple[int, int]] = []
    for most, cost in sorted(least.items()):
        if cost < (found[-1][1] if found else inf):
            found.append((most, cost))
    return found


def kept_of(plan: Plan) -> dict[str, Kept]:
    """The decisions of a plan in these terms."""

    def axes_of(bits: int) -> tuple[int, ...]:
        return tuple(a for a in range(len(plan.mesh.sizes)) if bits >> a & 1)

    found: dict[str, Kept] = {}
    for name, decision in plan.decisions.items():
        labels = list(plan.parts[name])
        row = tuple(None if k < 0 else labels[k] for k in decision.assignment)
        home, second = (
            None if cut is None else tuple(axes_of(s.axes) + axes_of(s.inner) for s in cut)
            for cut in (decision.home, decision.second)
        )
        found[name] = Kept(row, home or (), second)
    return found

"""Real movement by brute force: every assignment of mesh axes, every home, every second layout.

Written from the definitions alone, with nothing of the planner in it, for graphs of EinSums.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from brute_bound import made

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eindecomp import Graph, Vertex

Axes = tuple[int, ...]
"""The sizes of the mesh axes, outermost first."""
Assignment = tuple[str | None, ...]
"""For each axis the label it cuts; None where it is unused and the work is done again."""
Layout = tuple[tuple[int, ...], ...]
"""For each dimension the axes that cut it, outermost first; an axis in none replicates."""
Box = tuple[tuple[int, int], ...]
"""For each dimension where it starts and stops."""


def prime_axes(devices: int) -> Axes:
    """The prime factors in ascending order."""
    for factor in range(2, devices + 1):
        if devices % factor == 0:
            return (factor, *prime_axes(devices // factor))
    return ()


@lru_cache(maxsize=1 << 16)
def boxes(shape: tuple[int, ...], layout: Layout, axes: Axes) -> tuple[Box, ...]:
    """What every device has: piece i of k is [i·n//k, (i+1)·n//k), so that finer pieces nest."""
    found: list[Box] = []
    for at in product(*map(range, axes)):
        box: list[tuple[int, int]] = []
        for size, cut_by in zip(shape, layout, strict=True):
            i, k = 0, 1
            for axis in cut_by:
                i, k = i * axes[axis] + at[axis], k * axes[axis]
            box.append((i * size // k, (i + 1) * size // k))
        found.append(tuple(box))
    return tuple(found)


def volume(box: Box) -> int:
    return prod(stop - start for start, stop in box)


def overlap(one: Box, other: Box) -> int:
    sides = zip(one, other, strict=True)
    return prod(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a, b in sides)


@lru_cache(maxsize=1 << 16)
def received(shape: tuple[int, ...], held: Layout, need: Layout, axes: Axes) -> int:
    """What all devices receive to have `need` where they have `held`."""
    pairs = zip(boxes(shape, held, axes), boxes(shape, need, axes), strict=True)
    return sum(volume(need) - overlap(held, need) for held, need in pairs)


@lru_cache(maxsize=1 << 16)
def held(shape: tuple[int, ...], layout: Layout, axes: Axes) -> int:
    """The elements on all devices, if each had the largest piece."""
    sides = zip(shape, layout, strict=True)
    return prod(axes) * prod(-(-size // pieces(axes, cut_by)) for size, cut_by in sides)


def pieces(axes: Axes, cut_by: Iterable[int]) -> int:
    return prod(axes[axis] for axis in cut_by)


def assignments(sizes: Mapping[str, int], axes: Axes) -> list[Assignment]:
    """The ways to give axes to labels that make the most pieces and cut none too finely."""

    def fits(row: Assignment) -> bool:
        cuts = zip(layout_of(tuple(sizes), row), sizes.values(), strict=True)
        return all(pieces(axes, cut_by) <= size for cut_by, size in cuts)

    rows = [row for row in product([*sizes, None], repeat=len(axes)) if fits(row)]
    used = [pieces(axes, (a for a, label in enumerate(row) if label)) for row in rows]
    return [row for row, n in zip(rows, used, strict=True) if n == max(used)]


def layout_of(labels: Sequence[str], row: Assignment) -> Layout:
    """The layout that a tensor has which is made or read under these labels."""
    return tuple(tuple(a for a, given in enumerate(row) if given == label) for label in labels)


def summed_axes(output: Sequence[str], row: Assignment) -> tuple[int, ...]:
    return tuple(a for a, label in enumerate(row) if label is not None and label not in output)


def partial_width(vertex: Vertex) -> int:
    """How many elements a partial one weighs: float16 is summed in float32."""
    return 2 if vertex.dtype.name == "float16" else 1


def homes(
    shape: tuple[int, ...], tile: Layout, summed: Sequence[int], axes: Axes, width: int
) -> list[tuple[Layout, int]]:
    """Where a result can be left, and the elements that reducing it there moves.

    The reduce-scatter cuts each group's tile further, so what it adds nests inside. A partial
    element counts for `width`.
    """
    n_agg = pieces(axes, summed)
    tiles = sum(map(volume, boxes(shape, tile, axes))) // n_agg
    found: list[tuple[Layout, int]] = []
    for places in product([None, *range(len(tile))], repeat=len(summed)):
        placed = list(zip(summed, places, strict=True))
        home = tuple(
            own + tuple(a for a, place in placed if place == k) for k, own in enumerate(tile)
        )
        if all(pieces(axes, cut_by) <= n for cut_by, n in zip(home, shape, strict=True)):
            copies = pieces(axes, (a for a, place in placed if place is None))
            found.append((home, tiles * width * (n_agg - 1) + tiles * (copies - 1)))
    return found


@lru_cache(maxsize=1 << 17)
def made_cost(
    shape: tuple[int, ...],
    tile: Layout,
    summed: tuple[int, ...],
    needs: tuple[Layout, ...],
    axes: Axes,
    width: int,
    scale: int | None = None,
) -> int:
    """The fewest elements moved to reduce a tensor, keep it and hand it to its readers.

    With a scale, so many times that plus what is held.
    """
    best: list[int] = []

    def add(moved: int, *layouts: Layout) -> None:
        load = sum(held(shape, layout, axes) for layout in layouts)
        best.append(moved if scale is None else moved * scale + load)

    for home, reduced in homes(shape, tile, summed, axes, width):
        fetched = [received(shape, home, need, axes) for need in needs]
        add(reduced + sum(fetched), home)
        for second in set(needs):
            again = [received(shape, second, need, axes) for need in needs]
            kept = received(shape, home, second, axes)
            add(reduced + kept + sum(map(min, fetched, again)), home, second)
    return min(best)


@lru_cache(maxsize=1 << 16)
def stored_cost(shape: tuple[int, ...], needs: tuple[Layout, ...], axes: Axes) -> int:
    """A stored input: every reader receives what it needs less what is stored once."""
    needed = [sum(map(volume, boxes(shape, need, axes))) for need in needs]
    return sum(n - prod(shape) for n in needed)


def choices(graph: Graph, axes: Axes) -> dict[str, list[Assignment]]:
    """The assignments of every vertex."""
    return {v.name: assignments(graph.label_sizes(v), axes) for v in made(graph)}


def brute_bytes(
    graph: Graph,
    axes: Axes,
    inputs: str = "free",
    rows: dict[str, list[Assignment]] | None = None,
    scale: int | None = None,
) -> int:
    """The least bytes of all plans, or of those with the given assignments.

    With a scale, so many times that plus what devices read and hold.

    Once all axes are assigned every tensor is for itself, so the best of each is tabulated over its
    maker's and its readers' assignments and summed in one array with an axis per vertex.
    """
    rows = choices(graph, axes) if rows is None else rows
    order = {name: i for i, name in enumerate(rows)}
    total = np.zeros([len(own) for own in rows.values()], np.int64)
    for tensor in graph.vertices.values():
        readers = [
            (v.name, labels)
            for v in made(graph)
            for name, labels in zip(v.inputs, v.op.inputs, strict=True)
            if name == tensor.name
        ]
        names = {name for name, _ in readers} | ({tensor.name} & rows.keys())
        free = tensor.name not in rows and inputs == "free"
        if (free and scale is None) or not names:
            continue
        involved = sorted(names, key=lambda name: order[name])
        table = np.zeros([len(rows[name]) for name in involved], np.int64)
        for at in np.ndindex(table.shape):
            picked = {name: rows[name][i] for name, i in zip(involved, at, strict=True)}
            needs = tuple(layout_of(labels, picked[name]) for name, labels in readers)
            if row := picked.get(tensor.name):
                tile, summed = layout_of(tensor.labels, row), summed_axes(tensor.labels, row)
                width = partial_width(tensor)
                table[at] = made_cost(tensor.shape, tile, summed, needs, axes, width, scale)
            elif not free:
                table[at] = stored_cost(tensor.shape, needs, axes) * (scale or 1)
            if scale is not None:
                table[at] += sum(held(tensor.shape, need, axes) for need in needs)
        on = [len(rows[name]) if name in involved else 1 for name in rows]
        total += table.reshape(on) * tensor.dtype.itemsize
    return int(total.min())


def plans(graph: Graph, axes: Axes) -> int:
    """How many assignments there are of all vertices together."""
    return prod(len(rows) for rows in choices(graph, axes).values())

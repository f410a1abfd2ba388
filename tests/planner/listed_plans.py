"""The least bytes over nested layouts by listing plans one by one, as slow as it is plain.

Written from the definitions alone, for graphs of EinSums, to check the oracle that tabulates them.
Once all assignments are picked every home is for itself.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations, product
from math import prod
from typing import TYPE_CHECKING

from brute_bound import made
from brute_bytes import Axes, Layout, boxes, received, volume

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp import Graph

Row = dict[str, tuple[int, ...]]
"""For each label of a vertex the axes that cut it, outermost first."""
Shape = tuple[int, ...]


def nested(labels: Sequence[str], used: Sequence[int]) -> list[Row]:
    """Every way to give all of these axes to labels, in any order: each goes in somewhere."""
    rows: list[Row] = [dict.fromkeys(labels, ())]
    for axis in used:
        rows = [
            row | {label: (*own[:at], axis, *own[at:])}
            for row in rows
            for label, own in row.items()
            for at in range(len(own) + 1)
        ]
    return rows


@lru_cache(maxsize=1 << 10)
def rows_of(labels: tuple[str, ...], sizes: Shape, axes: Axes) -> list[Row]:
    """The assignments that make the most pieces."""
    found: dict[int, list[Row]] = {}
    for picks in product([False, True], repeat=len(axes)):
        used = [axis for axis, picked in enumerate(picks) if picked]
        for row in nested(labels, used):
            if all(count(axes, row[x]) <= n for x, n in zip(labels, sizes, strict=True)):
                found.setdefault(count(axes, used), []).append(row)
    return found[max(found)]


def count(axes: Axes, cut_by: Sequence[int]) -> int:
    """Into how many pieces axes cut."""
    return prod(axes[axis] for axis in cut_by)


def assignments(graph: Graph, axes: Axes) -> dict[str, list[Row]]:
    """The assignments of every vertex."""
    sizes = {vertex.name: graph.label_sizes(vertex) for vertex in made(graph)}
    return {name: rows_of(tuple(own), tuple(own.values()), axes) for name, own in sizes.items()}


def least_listed(
    graph: Graph, axes: Axes, stored: Mapping[str, Sequence[Layout]], tie: Mapping[str, str]
) -> int:
    """The least over every assignment of every vertex, every home and every second layout.

    `stored` are the homes of inputs that have one; `tie` gives inputs the home of a result.
    """
    every = assignments(graph, axes)
    best: list[int] = []
    for picked in product(*every.values()):
        row_of = dict(zip(every, picked, strict=True))
        needs: dict[str, list[Layout]] = {name: [] for name in graph.vertices}
        for name, row in row_of.items():
            vertex = graph[name]
            for source, labels in zip(vertex.inputs, vertex.op.inputs, strict=True):
                needs[source].append(tuple(row[label] for label in labels))
        total = 0
        for name, vertex in graph.vertices.items():
            lying = [name, *(w for w, result in tie.items() if result == name)]
            ways = [(home, 0) for home in stored.get(name, ())]
            if name in row_of:
                width = 2 if vertex.dtype.name == "float16" else 1
                ways = ways_home(
                    vertex.shape, vertex.labels, tuple(row_of[name].items()), axes, width
                )
            costs = [
                vertex.dtype.itemsize * reduced
                + sum(
                    graph[x].dtype.itemsize
                    * handed(graph[x].shape, home, tuple(sorted(needs[x])), axes)
                    for x in lying
                )
                for home, reduced in ways
            ]
            total += min(costs, default=0)
        best.append(total)
    return min(best)


@lru_cache(maxsize=1 << 14)
def ways_home(
    shape: Shape,
    labels: tuple[str, ...],
    row: tuple[tuple[str, tuple[int, ...]], ...],
    axes: Axes,
    width: int,
) -> list[tuple[Layout, int]]:
    """The homes that an assignment can reach, and the elements that reducing there moves.

    Groups of devices have a tile's partial results, which count for `width`. Of every element one
    of them receives all the others' and hands the result to those who keep it, too.
    """
    axes_of = dict(row)
    tile = tuple(axes_of[label] for label in labels)
    summed = [axis for label, own in row if label not in labels for axis in own]
    partial = sum(map(volume, boxes(shape, tile, axes)))
    results = partial // count(axes, summed)
    found: list[tuple[Layout, int]] = []
    for inner in inside(tuple(summed), len(shape)):
        home = tuple(map(sum, zip(tile, inner, strict=True), [()] * len(shape)))
        if all(not own or count(axes, own) <= n for own, n in zip(home, shape, strict=True)):
            kept = sum(map(volume, boxes(shape, home, axes)))
            found.append((home, width * (partial - results) + kept - results))
    return found


def inside(summed: tuple[int, ...], dims: int) -> set[Layout]:
    """Every way to cut dimensions further by some of the axes, in any order."""
    found: set[Layout] = set()
    for few in range(len(summed) + 1 if dims else 1):
        for order in permutations(summed, few):
            for ends in product(range(few + 1), repeat=dims - 1 if dims else 0):
                cuts = [0, *ends, few]
                if cuts == sorted(cuts):
                    found.add(tuple(order[cuts[k] : cuts[k + 1]] for k in range(dims)))
    return found


@lru_cache(maxsize=1 << 16)
def handed(shape: Shape, home: Layout, needs: tuple[Layout, ...], axes: Axes) -> int:
    """The fewest elements moved to hand a tensor from its home to all who read it."""
    fetched = [received(shape, home, need, axes) for need in needs]
    best = [sum(fetched)]
    for second in set(needs):
        again = [received(shape, second, need, axes) for need in needs]
        best.append(received(shape, home, second, axes) + sum(map(min, fetched, again)))
    return min(best)

"""Lays a graph out in layers: each node below all that it reads, few lines crossing.

Longest paths give the layers, barycentres the order within a layer, and least squares under that
order the horizontal places. Long links bend through dummy nodes, one for each layer that they pass;
links of one source share theirs as far as they go the same way. Words of links have a place of
their own just above the target. The same graph is always laid out in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

_GAP, _DUMMY_GAP = 26.0, 14.0  # between neighbours in a layer
_LAYER_GAP, _DUMMY_HEIGHT = 26.0, 14.0
_LONGEST = 64  # layers; links that pass more are not bent
_SWEEPS = 12
_FEW = 4000  # nodes, dummies included, of graphs that are placed with more sweeps
_PULL = (1.0, 2.0, 12.0)  # of a link between two boxes, a box and a dummy, two dummies
_LEAST_PULL = 0.1


@dataclass(frozen=True, slots=True)
class Item:
    """What is placed."""

    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Connector:
    """A link between two items; with words it needs room for them."""

    source: int
    target: int
    words_width: float = 0.0
    thickness: float = 1.0


@dataclass(frozen=True, slots=True)
class Layered:
    """Where everything is: items by their middle and top, links by the points they pass."""

    width: float
    height: float
    items: tuple[tuple[float, float], ...]
    routes: tuple[tuple[tuple[float, float], ...], ...]
    """Each pair of points is joined by a curve that leaves and enters vertically."""
    words: tuple[tuple[float, float] | None, ...]
    """The middle of a link's words."""


@dataclass
class _Grid:
    """Nodes, that is items and then dummies, in layers."""

    items: Sequence[Item]
    links: Sequence[Connector]
    widths: list[float]
    layer: list[int]
    above: list[list[int]] = field(default_factory=list[list[int]])
    below: list[list[int]] = field(default_factory=list[list[int]])
    chains: list[list[int]] = field(default_factory=list[list[int]])
    """For each link the nodes that it passes, its ends included."""

    def add(self, width: float, layer: int) -> int:
        self.widths.append(width)
        self.layer.append(layer)
        return len(self.widths) - 1

    def is_dummy(self, node: int) -> bool:
        return node >= len(self.items)


def lay_out(items: Sequence[Item], links: Sequence[Connector]) -> Layered:
    """Place items and links.

    >>> made = lay_out([Item(40, 20), Item(40, 20)], [Connector(0, 1)])
    >>> made.items, made.routes
    (((20.0, 0.0), (20.0, 46.0)), (((20.0, 20.0), (20.0, 46.0)),))
    """
    if not items:
        return Layered(0, 0, (), (), ())
    grid = _with_dummies(items, links, _layers(items, links))
    order = _ordered(grid)
    return _finished(grid, order, _places(grid, order))


# Layers


def _layers(items: Sequence[Item], links: Sequence[Connector]) -> list[int]:
    spans = [2 if link.words_width else 1 for link in links]
    into: list[list[int]] = [[] for _ in items]
    outof: list[list[int]] = [[] for _ in items]
    for k, link in enumerate(links):
        into[link.target].append(k)
        outof[link.source].append(k)
    layer = [0] * len(items)
    missing = [len(own) for own in into]
    ready = [n for n, count in enumerate(missing) if not count]
    for node in ready:  # it grows
        for k in outof[node]:
            target = links[k].target
            layer[target] = max(layer[target], layer[node] + spans[k])
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    for node in reversed(ready):
        held = sum(bool(into[links[k].source]) for k in into[node])
        if held < len(outof[node]):
            # Links get shorter if it lies just above its first reader; what is given follows.
            layer[node] = min(layer[links[k].target] - spans[k] for k in outof[node])
    return layer


def _with_dummies(items: Sequence[Item], links: Sequence[Connector], layer: list[int]) -> _Grid:
    grid = _Grid(items, links, [item.width for item in items], list(layer))
    trunk: dict[tuple[int, int], int] = {}
    for link in links:
        chain = [link.source]
        start, end = layer[link.source], layer[link.target]
        stop = end - 1 if link.words_width else end
        if end - start <= _LONGEST:
            for at in range(start + 1, stop):
                key = (link.source, at)
                if key not in trunk:
                    trunk[key] = grid.add(2.0, at)
                chain.append(trunk[key])
        if link.words_width:
            # As much room on the other side keeps the line in the middle, and so straight.
            chain.append(grid.add(2 * link.words_width + link.thickness, end - 1))
        grid.chains.append([*chain, link.target])
    grid.above = [[] for _ in grid.widths]
    grid.below = [[] for _ in grid.widths]
    for pair in dict.fromkeys(pair for chain in grid.chains for pair in pairwise(chain)):
        upper, lower = pair
        if grid.layer[lower] - grid.layer[upper] == 1:
            grid.below[upper].append(lower)
            grid.above[lower].append(upper)
    return grid


# Order


def _ordered(grid: _Grid) -> list[list[int]]:
    """The nodes of each layer from left to right, near those that they are linked with."""
    order: list[list[int]] = [[] for _ in range(max(grid.layer) + 1)]
    for node, layer in enumerate(grid.layer):
        order[layer].append(node)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        near = grid.above if down else grid.below
        for before, row in pairwise(order if down else order[::-1]):
            at = {node: k for k, node in enumerate(before)}
            middle: dict[int, float] = {}
            last = -1.0  # those without neighbours stay where they are
            for node in row:
                places = [at[other] for other in near[node] if other in at]
                last = middle[node] = sum(places) / len(places) if places else last
            row.sort(key=middle.__getitem__)
    return order


# Places


def _places(grid: _Grid, order: list[list[int]]) -> list[float]:
    """The middle of every node: near its neighbours, apart from those beside it."""
    across, items = [0.0] * len(grid.widths), len(grid.items)
    gaps = [[_apart(grid, a, b) for a, b in pairwise(row)] for row in order]
    for row, own in zip(order, gaps, strict=True):
        _settle(row, [0.0] * len(row), [1.0] * len(row), own, across)
    for sweep in range(40 if len(grid.widths) <= _FEW else 6):
        rows = list(zip(order, gaps, strict=True))
        for row, own in rows if sweep % 2 == 0 else reversed(rows):
            wanted: list[float] = []
            weights: list[float] = []
            for node in row:
                near = [*grid.above[node], *grid.below[node]]
                pulls = [_PULL[(node >= items) + (other >= items)] for other in near]
                total = sum(pulls)
                pulled = sum(p * across[n] for p, n in zip(pulls, near, strict=True))
                wanted.append(pulled / total if near else across[node])
                weights.append(total or _LEAST_PULL)
            _settle(row, wanted, weights, own, across)
    left = min(x - w / 2 for x, w in zip(across, grid.widths, strict=True))
    return [x - left for x in across]


def _apart(grid: _Grid, a: int, b: int) -> float:
    dummy = grid.is_dummy(a) or grid.is_dummy(b)
    return (grid.widths[a] + grid.widths[b]) / 2 + (_DUMMY_GAP if dummy else _GAP)


def _settle(
    row: list[int], wanted: list[float], pulls: list[float], gaps: list[float], across: list[float]
) -> None:
    """The places nearest to the wanted ones that keep the order and the gaps.

    Isotonic regression: neighbours that would overlap move together, to their weighted mean.
    """
    offsets = list(accumulate(gaps, initial=0.0))
    blocks: list[tuple[float, float, int]] = []
    for k in range(len(row)):
        mean, weight, count = wanted[k] - offsets[k], pulls[k], 1
        while blocks and blocks[-1][0] > mean:
            before, more, size = blocks.pop()
            mean = (mean * weight + before * more) / (weight + more)
            weight, count = weight + more, count + size
        blocks.append((mean, weight, count))
    means = [mean for mean, _, count in blocks for _ in range(count)]
    for node, mean, offset in zip(row, means, offsets, strict=True):
        across[node] = mean + offset


# Routes


def _finished(grid: _Grid, order: list[list[int]], across: list[float]) -> Layered:
    items = grid.items
    heights = [
        max((_DUMMY_HEIGHT if grid.is_dummy(n) else items[n].height for n in row), default=0.0)
        for row in order
    ]
    tops = list(accumulate((height + _LAYER_GAP for height in heights), initial=0.0))
    boxes = [
        (across[n], tops[grid.layer[n]] + (heights[grid.layer[n]] - item.height) / 2)
        for n, item in enumerate(items)
    ]
    leaves, enters = _attached(grid, across)
    routes: list[tuple[tuple[float, float], ...]] = []
    words: list[tuple[float, float] | None] = []
    for k, (link, chain) in enumerate(zip(grid.links, grid.chains, strict=True)):
        source, target = link.source, link.target
        points = [(leaves[k], boxes[source][1] + items[source].height)]
        for node in chain[1:-1]:
            top, x = tops[grid.layer[node]], across[node]
            points += [(x, top), (x, top + heights[grid.layer[node]])]
        routes.append((*points, (enters[k], boxes[target][1])))
        said = chain[-2]
        middle = tops[grid.layer[said]] + heights[grid.layer[said]] / 2
        place = across[said] + (link.thickness + link.words_width) / 2, middle  # at its right
        words.append(place if link.words_width else None)
    right = max(x + w / 2 for x, w in zip(across, grid.widths, strict=True))
    return Layered(right, tops[-1] - _LAYER_GAP, tuple(boxes), tuple(routes), tuple(words))


def _attached(grid: _Grid, across: list[float]) -> tuple[list[float], list[float]]:
    """Where each link leaves its source and enters its target: side by side, in order."""
    leaves = [0.0] * len(grid.chains)
    enters = [0.0] * len(grid.chains)
    ends: dict[tuple[int, bool], dict[int, list[int]]] = {}
    for k, chain in enumerate(grid.chains):
        for node, next_node, is_source in (
            (chain[0], chain[1], True), (chain[-1], chain[-2], False)
        ):  # fmt: skip
            ends.setdefault((node, is_source), {}).setdefault(next_node, []).append(k)
    for (node, is_source), groups in ends.items():
        ranked = sorted(groups, key=lambda other: across[other])
        width = grid.items[node].width * 0.7
        for place, other in enumerate(ranked):
            x = across[node] + width * ((place + 0.5) / len(ranked) - 0.5)
            for k in groups[other]:
                (leaves if is_source else enters)[k] = x
    return leaves, enters

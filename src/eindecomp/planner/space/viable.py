"""Viable partition vectors: the ways to cut labels into as many pieces as there are devices.

The prime factors of p are balls, the labels are buckets: each way to throw all balls is one vector,
as long as no label is cut into more pieces than it has elements. A table over the balls that are
left says in how many ways the remaining labels can take them, so vectors are counted without being
listed, and listed without dead ends.

A `Restriction` says which of them a vertex may take: given parts, limited work, small tiles.
`strategy.py` has those that name labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from math import prod
from typing import Protocol

import numpy as np

from eindecomp.errors import PlanError
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill, Input
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.work import tile_operations
from eindecomp.layout.mesh import BALANCED, EVEN, Mesh, can_cut, prime_factors
from eindecomp.layout.view import Dims, View, dim_parts, tile_sides
from eindecomp.planner import budgets
from eindecomp.solve.problem.arrays import Floats, Ints, Mask


def viable(sizes: Mapping[str, int], devices: int, *, even: bool = False) -> list[dict[str, int]]:
    """Every viable partition vector over the labels with these sizes.

    >>> viable({"i": 8, "k": 8}, 4)
    [{'i': 1, 'k': 4}, {'i': 2, 'k': 2}, {'i': 4, 'k': 1}]
    >>> viable({"i": 6, "k": 7}, 4, even=True)
    [{'i': 2, 'k': 1}]
    """
    rows = viable_parts(tuple(sizes.values()), prime_factors(devices), even=even)
    vectors: list[list[int]] = rows.tolist()
    return [dict(zip(sizes, parts, strict=True)) for parts in vectors]


def most_pieces(sizes: tuple[int, ...], factors: tuple[int, ...], *, even: bool = False) -> int:
    """The most pieces that the labels can be cut into."""
    return _throws(sizes, factors, even).most


def count_parts(sizes: tuple[int, ...], factors: tuple[int, ...], *, even: bool = False) -> int:
    """How many viable vectors there are, without listing them.

    >>> count_parts((2,) * 50, (2,) * 6)
    15890700
    """
    return int(_throws(sizes, factors, even).ways[0].flat[0])


@lru_cache(maxsize=4096)
def viable_parts(
    sizes: tuple[int, ...],
    factors: tuple[int, ...],
    alike: tuple[tuple[int, ...], ...] = (),
    *,
    even: bool = False,
) -> Ints:
    """One row per viable vector, those that divide the sizes evenly first, or with `even` alone.

    If the labels cannot take all factors, these are the vectors with the most pieces. Of vectors
    that differ only in how they treat labels that are `alike`, one is kept: the one that cuts the
    earlier labels into more pieces. Raises `PlanError` if there are too many to list.
    """
    rows = _listed(sizes, factors, len(sizes), alike, even=even)
    uneven: Ints = np.sum(np.array(sizes, dtype=np.int64) % rows != 0, axis=1)
    return rows[np.lexsort((*rows.T[::-1], uneven))] if sizes else rows


@lru_cache(maxsize=4096)
def vectors_of(
    view: View,
    factors: tuple[int, ...],
    alike: tuple[tuple[int, ...], ...] = (),
    *,
    even: bool = False,
) -> Ints:
    """One row per viable vector of a view, whose last labels may be ways to read parts.

    Factors that go to a way cut nothing; the others cut labels as if there were no more.
    """
    if not view.ways:
        return viable_parts(view.sizes, factors, alike, even=even)
    kinds = Counter(factors)
    blocks: list[Ints] = []
    for taken in product(*(range(count + 1) for count in kinds.values())):
        waiting = Counter(dict(zip(kinds, taken, strict=True)))
        most = prod(waiting.elements())
        if most <= max(view.way_sizes):
            left = tuple(sorted((kinds - waiting).elements()))
            rows = viable_parts(view.cut_sizes, left, alike, even=even)
            ways = viable_parts((most,) * len(view.ways), tuple(waiting.elements()))
            both = np.repeat(rows, len(ways), axis=0), np.tile(ways, (len(rows), 1))
            blocks.append(np.concatenate(both, axis=1))
    return np.concatenate(blocks)


def some_parts(
    sizes: tuple[int, ...], factors: tuple[int, ...], count: int, *, even: bool = False
) -> Ints:
    """All viable vectors, or `count` of them where there are more."""
    if count_parts(sizes, factors, even=even) <= count:
        return viable_parts(sizes, factors, even=even)
    return _listed(sizes, factors, len(sizes), most=count, even=even)


def some_vectors(view: View, mesh: Mesh, count: int) -> Ints:
    """Vectors of a view of which nothing is read in parts: all, or `count` where there are more."""
    rows = some_parts(view.cut_sizes, mesh.sizes, count, even=mesh.cuts_evenly)
    return np.concatenate([rows, np.ones((len(rows), len(view.ways)), dtype=np.int64)], axis=1)


@lru_cache(maxsize=4096)
def parts_along(
    sizes: tuple[int, ...],
    factors: tuple[int, ...],
    labels: tuple[int, ...],
    *,
    even: bool = False,
) -> Ints:
    """The distinct values that viable vectors have for some of the labels.

    >>> parts_along((2,) * 50, (2,) * 6, (7, 3)).tolist()
    [[1, 1], [1, 2], [2, 1], [2, 2]]
    """
    order = (*labels, *(i for i in range(len(sizes)) if i not in labels))
    return _listed(tuple(sizes[i] for i in order), factors, len(labels), even=even)


@dataclass(frozen=True, slots=True, eq=False)
class _Throws:
    """How balls can be thrown into buckets: kinds of balls, what a bucket takes, and counts."""

    balls: tuple[int, ...]
    """How many balls there are of each kind."""
    options: tuple[Sequence[tuple[tuple[int, ...], int]], ...]
    """For each bucket the balls of each kind that it can take, and their product."""
    ways: tuple[Floats, ...]
    """For each bucket and the balls thrown before it, in how many ways it can go on from there."""
    most: int


@lru_cache(maxsize=4096)
def _throws(sizes: tuple[int, ...], factors: tuple[int, ...], even: bool) -> _Throws:
    kinds = sorted(Counter(factors).items()) or [(1, 0)]
    balls = tuple(count for _, count in kinds)
    every = [
        (taken, prod(kind**n for (kind, _), n in zip(kinds, taken, strict=True)))
        for taken in product(*(range(n + 1) for n in balls))
    ]
    # An empty label stays in one piece.
    rooms = (max(size, 1) for size in sizes)
    rule = EVEN if even else BALANCED
    options = tuple([own for own in every if can_cut(rule, room, own[1])] for room in rooms)
    pieces = np.array([n for _, n in every], dtype=np.int64).reshape([n + 1 for n in balls])
    thrown = np.zeros(pieces.shape, dtype=bool)
    thrown.flat[0] = True
    for own in options:
        thrown = _forward(thrown, own)
    most = int(pieces[thrown].max())
    ways = [(thrown & (pieces == most)).astype(np.float64)]
    for own in reversed(options):
        ways.append(_backward(ways[-1], own))
    return _Throws(balls, options, tuple(reversed(ways)), most)


def _forward(thrown: Mask, options: Sequence[tuple[tuple[int, ...], int]]) -> Mask:
    """Which numbers of balls can have been thrown after one more bucket."""
    after = np.zeros_like(thrown)
    for taken, _ in options:
        before = tuple(slice(0, n - k) for n, k in zip(thrown.shape, taken, strict=True))
        after[tuple(slice(k, None) for k in taken)] |= thrown[before]
    return after


def _backward(ways: Floats, options: Sequence[tuple[tuple[int, ...], int]]) -> Floats:
    """In how many ways a bucket and those after it can take the remaining balls."""
    before = np.zeros_like(ways)
    for taken, _ in options:
        rest = tuple(slice(0, n - k) for n, k in zip(ways.shape, taken, strict=True))
        before[rest] += ways[tuple(slice(k, None) for k in taken)]
    return before


def _listed(
    sizes: tuple[int, ...],
    factors: tuple[int, ...],
    buckets: int,
    alike: tuple[tuple[int, ...], ...] = (),
    most: int | None = None,
    *,
    even: bool,
) -> Ints:
    """The values of vectors for the first buckets; with `most`, no more than that many rows."""
    throws = _throws(sizes, factors, even)
    rows = np.ones((1, 0), dtype=np.int64)
    thrown = np.zeros((1, len(throws.balls)), dtype=np.int64)
    before = {b: a for group in alike for a, b in pairwise(group)}
    for bucket in range(buckets):
        grown: list[tuple[Ints, Ints]] = []
        for taken, pieces in throws.options[bucket]:
            after = thrown + np.array(taken, dtype=np.int64)
            fits = np.flatnonzero((after <= np.array(throws.balls, dtype=np.int64)).all(axis=1))
            fits = fits[throws.ways[bucket + 1][tuple(after[fits].T)] > 0]
            if bucket in before:
                fits = fits[rows[fits, before[bucket]] >= pieces]
            column = np.full((len(fits), 1), pieces, dtype=np.int64)
            grown.append((np.concatenate([rows[fits], column], axis=1), after[fits]))
            if most is None and sum(part.size for part, _ in grown) > budgets.LISTED_NUMBERS:
                shown = ", ".join(map(str, sizes[:6]))
                shown += f", … {len(sizes)} in all" if len(sizes) > 6 else ""
                raise PlanError(
                    f"labels of sizes ({shown}) can be cut into {throws.most} pieces in "
                    f"{count_parts(sizes, factors, even=even):,} ways, too many to list"
                )
        rows = np.concatenate([part for part, _ in grown])[:most]
        thrown = np.concatenate([part for _, part in grown])[:most]
    # Different balls can multiply to the same number of pieces.
    return np.unique(rows, axis=0) if buckets else rows


class Restriction(Protocol):
    """Which partition vectors a vertex may take."""

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> Mask:
        """A mask over rows of parts; `mesh` may hold only the outer axes."""
        ...


@dataclass(frozen=True)
class FixedParts:
    """Cuts every vertex that a decomposition for `devices` devices names as it says."""

    parts: Mapping[str, tuple[int, ...]]
    devices: int

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> Mask:
        """On a mesh of only the outer axes, whatever inner axes can still turn into that."""
        del view
        if vertex.name not in self.parts:
            return np.ones(len(parts), dtype=bool)
        wanted = np.array(self.parts[vertex.name], dtype=np.int64)
        if mesh.devices == self.devices:
            return (parts == wanted).all(axis=1)
        return (wanted % parts == 0).all(axis=1)


@dataclass(frozen=True)
class WorkLimit:
    """Cuts vertices only so that all their tiles together take at most so many operations.

    A fused contraction works pair by pair inside a tile; cutting a label that a pair lacks makes
    several tiles compute the same.
    """

    most: Mapping[str, float]
    """The most operations of each vertex that is limited."""

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> Mask:
        """On a mesh of only the outer axes, a lower bound: cutting further repeats no less."""
        del mesh
        if vertex.name not in self.most:
            return np.ones(len(parts), dtype=bool)
        tile = {
            label: size / parts[:, k].astype(np.float64)
            for k, (label, size) in enumerate(zip(view.cut_labels, view.cut_sizes, strict=True))
        }
        operations = parts.astype(np.float64).prod(axis=1) * tile_operations(vertex.op, tile)
        return operations <= self.most[vertex.name] * (1 + budgets.SUM_ROUNDING)


@dataclass(frozen=True)
class SmallTiles:
    """Cuts every vertex such that its tiles take no more bytes together, or the fewest it can."""

    nbytes: int
    devices: int
    items: Mapping[str, int]
    """The bytes of an element of each tensor that is not generated where it is read."""

    @staticmethod
    def of(graph: Graph, devices: int, nbytes: int) -> SmallTiles:
        """The strategy for a graph."""
        vertices = graph.vertices.values()
        items = {v.name: v.dtype.itemsize for v in vertices if not isinstance(v.op, Fill)}
        return SmallTiles(nbytes, devices, items)

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> Mask:
        """On a mesh of only the outer axes, anything: inner ones can still cut it."""
        if mesh.devices < self.devices or isinstance(vertex.op, Input) or not len(parts):
            return np.ones(len(parts), dtype=bool)
        # The fewest of all, however few of the vectors are asked about.
        known = some_vectors(view, mesh, budgets.SMALLEST_VECTORS)
        fewest = self._taken(vertex, view, known).min(initial=2**62)
        return self._taken(vertex, view, parts) <= max(self.nbytes, int(fewest))

    def _taken(self, vertex: Vertex, view: View, parts: Ints) -> Ints:
        """The bytes of the largest tiles together, for each partition vector."""
        taken = self.items.get(vertex.name, 0) * _elements(view, view.output, parts)
        for name, dims in zip(vertex.inputs, view.reads, strict=True):
            if dims is not None:
                taken = taken + self.items.get(name, 0) * _elements(view, dims, parts)
        return taken


def _elements(view: View, dims: Dims, parts: Ints) -> Ints:
    """The elements of the largest tile, for each partition vector."""
    return tile_sides(dims, dim_parts(view, dims, parts)).prod(axis=1)

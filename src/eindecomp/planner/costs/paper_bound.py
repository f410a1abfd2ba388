"""The paper's costs: an upper bound on the elements that move, by numbers of pieces alone.

For a vertex cut into p kernel calls whose tiles have n_X, n_Y, n_Z elements, joining costs
p·(n_X + n_Y) and aggregating over n_agg pieces (p / n_agg)·(n_agg - 1)·n_Z. Moving a tensor from
one partition to another costs what `repartition` says. Inputs are free: they come in whatever
partition their readers want.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.graph.ops import Fill
from eindecomp.layout.view import dim_parts, tile_sides

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.view import Dims, View

    Ints = NDArray[np.int64]


def is_read(graph: Graph, name: str) -> bool:
    """Whether reading a tensor costs anything: a fill is generated where it is read."""
    return not isinstance(graph[name].op, Fill)


def join_cost(graph: Graph, vertex: Vertex, view: View, parts: Ints) -> Ints:
    """The elements that kernel calls read, for each partition vector."""
    total = np.zeros(len(parts), dtype=np.int64)
    for name, dims in zip(vertex.inputs, view.reads, strict=True):
        if dims is not None and is_read(graph, name):
            total += tile_sides(dims, dim_parts(view, dims, parts)).prod(axis=1)
    return total * parts.prod(axis=1)


def aggregate_cost(view: View, parts: Ints) -> Ints:
    """The elements of partial results that move, for each partition vector."""
    summed = parts[:, list(view.aggregated)].prod(axis=1)
    tile = tile_sides(view.output, dim_parts(view, view.output, parts)).prod(axis=1)
    return parts.prod(axis=1) // summed * (summed - 1) * tile


def repartition_table(made: tuple[View, Ints], read: tuple[View, Dims, Ints]) -> Ints:
    """The cost of passing a tensor on: a table of the maker's vectors × the reader's."""
    (maker, made_parts), (reader, dims, read_parts) = made, read
    held, of_held = _distinct(dim_parts(maker, maker.output, made_parts))
    need, of_need = _distinct(dim_parts(reader, dims, read_parts))
    costs = repartition(held, tile_sides(maker.output, held), need, tile_sides(dims, need))
    return costs[of_held[:, None], of_need[None]]


def repartition(held: Ints, held_tile: Ints, need: Ints, need_tile: Ints) -> Ints:
    """The cost from every held partition to every needed one, given by pieces and sides of tiles.

    `pairs` counts the pairs of tiles that intersect, dimension by dimension.
    """
    shape = (len(held), len(need))
    pairs, n_int = np.ones(shape, np.int64), np.ones(shape, np.int64)
    same = np.ones(shape, bool)
    # One dimension at a time, to hold one table in memory instead of one for each dimension.
    for k in range(held.shape[1]):
        a, c = held[:, k, None], need[None, :, k]
        ours, theirs = held_tile[:, k, None], need_tile[None, :, k]
        pairs *= a + c - np.gcd(a, c)
        n_int *= np.minimum(ours, theirs)
        same &= (a == c) & (ours == theirs)
    tiles = need.prod(axis=1)[None]
    n_p, n_c = held_tile.prod(axis=1)[:, None], need_tile.prod(axis=1)[None]
    costs = (pairs - tiles) * (n_c + n_p) + np.where(n_p != n_int, n_p * tiles, 0)
    return np.where(same, 0, costs)


def _distinct(rows: Ints) -> tuple[Ints, Ints]:
    if rows.shape[1] == 0:
        return rows[:1], np.zeros(len(rows), dtype=np.int64)
    distinct: Any = np.unique(rows, axis=0, return_inverse=True)
    return distinct[0], distinct[1].ravel()

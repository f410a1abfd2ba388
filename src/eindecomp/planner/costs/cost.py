"""What a plan costs, vertex by vertex and edge by edge: at an objective's prices, or by the paper.

The paper bounds the elements that move from above, by numbers of pieces alone. For a vertex cut
into p kernel calls whose tiles have n_X, n_Y, n_Z elements, joining costs p·(n_X + n_Y) and
aggregating over n_agg pieces (p / n_agg)·(n_agg - 1)·n_Z. Moving a tensor from one partition to
another costs what `repartition` says. Inputs are free: they come in whatever partition their
readers want.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.work import partial_bytes
from eindecomp.layout.view import Dims, View, dim_parts, planned_views, tile_sides, view_of
from eindecomp.planner.costs.named_rows import fetched
from eindecomp.planner.costs.price import Price, beyond, hidden
from eindecomp.planner.space.choices import Decision, Layouts, decided_choices
from eindecomp.solve.problem.arrays import Ints

Number = int | float


@dataclass(frozen=True, slots=True, repr=False)
class Cost:
    """A cost by its parts, in elements, bytes or seconds, depending on the objective.

    What runs beside computing does not count.

    Attributes:
        join: What reading inputs costs (under the paper's objective, everything that kernels read)
            and, under an input's name, keeping it in a second layout: `{"Z": 256}`.
        aggregate: What reducing partial results costs, by vertex: `{"Z": 0}`.
        repartition: What fetching the results of other vertices and keeping a second layout costs,
            by vertex: `{"Z": 64}`.
        compute: What kernel calls cost, by vertex: `{"Z": 0}`.
        edges: What (maker, reader, which of its inputs) costs, `{("A", "Z", 0): 64}`; part of
            `join` or `repartition`.

    Examples:
        >>> Cost(join={"Z": 256}, aggregate={"Z": 64}).total
        320
    """

    join: dict[str, Number] = field(default_factory=dict[str, Number])
    aggregate: dict[str, Number] = field(default_factory=dict[str, Number])
    repartition: dict[str, Number] = field(default_factory=dict[str, Number])
    compute: dict[str, Number] = field(default_factory=dict[str, Number])
    edges: dict[tuple[str, str, int], Number] = field(default_factory=dict[Any, Number])

    @property
    def total(self) -> Number:
        """The sum of all parts."""
        return sum(self.of(name) for name in self.join)

    def of(self, name: str) -> Number:
        """What one vertex costs.

        Args:
            name: A vertex, such as `"Z"`.
        """
        parts = (self.join, self.aggregate, self.repartition, self.compute)
        return sum(part.get(name, 0) for part in parts)

    def __repr__(self) -> str:
        names = ("join", "aggregate", "repartition", "compute")
        sums = {name: sum(getattr(self, name).values()) for name in names}
        told = ", ".join(f"{name} {number}" for name, number in sums.items() if number)
        return f"<Cost {self.total}{f': {told}' if told else ''}>"


def paper_cost(graph: Graph, parts: Mapping[str, tuple[int, ...]]) -> Cost:
    """The paper's cost of partition vectors, given in the order of each view's labels."""
    costs = Cost()
    views = dict(planned_views(graph))
    rows = {name: np.array([parts[name]], dtype=np.int64).reshape(1, -1) for name in views}
    for name, view in views.items():
        vertex = graph[name]
        costs.join[name] = int(join_cost(graph, vertex, view, rows[name])[0])
        costs.aggregate[name] = int(aggregate_cost(view, rows[name])[0])
        costs.repartition[name] = 0
        for k, (source, dims) in enumerate(zip(vertex.inputs, view.reads, strict=True)):
            if dims is not None and source in views:
                made = (views[source], rows[source])
                table = repartition_table(made, (view, dims, rows[name]))
                costs.edges[source, name, k] = int(table[0, 0])
                costs.repartition[name] += costs.edges[source, name, k]
    return costs


def decided_cost(
    graph: Graph,
    price: Price,
    decisions: Mapping[str, Decision],
    given: Mapping[str, Layouts],
    nearest: Price | None = None,
) -> Cost:
    """What decisions cost at given prices; inputs that `given` does not name are free.

    Tensors are fetched from the layout that is cheapest at these prices, or at those of `nearest`.
    """
    costs = Cost()
    for name, layouts in given.items():
        if layouts.second is not None:
            costs.join[name] = _kept(price, layouts, graph[name])
    for name, decision in decisions.items():
        vertex = graph[name]
        view = view_of(graph, vertex)
        own = decided_choices(view, price.mesh, decision)
        items = tuple(graph[n].dtype.itemsize for n in vertex.inputs)
        costs.compute[name] = price.compute(vertex, own, items)[0].item()
        item = vertex.dtype.itemsize
        sources = {
            k: source
            for k, (source, reads) in enumerate(zip(vertex.inputs, own.reads, strict=True))
            if reads is not None and (source in decisions or source in given)
        }
        hides = hidden(price, vertex, own, items, len(sources))
        scatter = price.reduce_scatter(own, vertex.elements, partial_bytes(graph, vertex), item)
        costs.aggregate[name] = beyond(scatter, hides)[0, 0].item()
        costs.join[name] = 0
        costs.repartition[name] = _kept(price, decision.layouts, vertex)
        for k, source in sources.items():
            held = decisions[source].layouts if source in decisions else given[source]
            prices = (price,) if nearest is None else (price, nearest)
            fetches = [fetched(each, own, k, held.cuts, items[k]) for each in prices]
            cost = beyond(fetches[0].flat[fetches[-1].argmin()], hides)
            cost = np.asarray(cost).item()
            part = costs.repartition if source in decisions else costs.join
            part[name] += cost
            costs.edges[source, name, k] = cost
    return costs


def _kept(price: Price, layouts: Layouts, vertex: Vertex) -> Number:
    """What it costs to keep a tensor in a second layout as well."""
    if layouts.second is None:
        return 0
    return price.fetch([layouts.home], [layouts.second], vertex.dtype.itemsize)[0, 0].item()


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
    distinct: Any = np.unique(rows, axis=0, return_inverse=True)
    return distinct[0], distinct[1].ravel()

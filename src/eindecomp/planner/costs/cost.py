"""What a plan costs, vertex by vertex and edge by edge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.graph.work import state_bytes
from eindecomp.layout.view import is_planned, view_of
from eindecomp.planner.costs import paper_bound as paper
from eindecomp.planner.costs.price import beyond, hidden
from eindecomp.planner.space.choices import Decision, Layouts, decided_choices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.costs.price import Price

Number = int | float


@dataclass(frozen=True, slots=True, repr=False)
class Cost:
    """A cost by its parts, in elements, bytes or seconds, depending on the objective.

    What runs beside computing is no part of them.

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
    edges: dict[tuple[str, str, int], Number] = field(
        default_factory=dict[tuple[str, str, int], Number]
    )

    @property
    def total(self) -> Number:
        """All of it."""
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
    views = {v.name: view_of(graph, v) for v in graph.vertices.values() if is_planned(v)}
    rows = {name: np.array([parts[name]], dtype=np.int64).reshape(1, -1) for name in views}
    # Models repeat layers: equal vertices cost the same.
    known: dict[Any, int] = {}
    for name, view in views.items():
        vertex, own = graph[name], parts[name]
        read = tuple(paper.is_read(graph, source) for source in vertex.inputs)
        key = (view, own, read)
        if key not in known:
            known[key] = int(paper.join_cost(graph, vertex, view, rows[name])[0])
            known[view, own] = int(paper.aggregate_cost(view, rows[name])[0])
        costs.join[name], costs.aggregate[name] = known[key], known[view, own]
        costs.repartition[name] = 0
        for k, (source, dims) in enumerate(zip(vertex.inputs, view.reads, strict=True)):
            if dims is None or source not in views:
                continue
            edge = (views[source], parts[source], view, own, k)
            if edge not in known:
                made = (views[source], rows[source])
                table = paper.repartition_table(made, (view, dims, rows[name]))
                known[edge] = int(table[0, 0])
            costs.edges[source, name, k] = known[edge]
            costs.repartition[name] += known[edge]
    return costs


def decided_cost(
    graph: Graph,
    price: Price,
    decisions: Mapping[str, Decision],
    given: Mapping[str, Layouts],
) -> Cost:
    """What decisions cost at given prices; inputs that `given` does not name are free."""
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
        fetched = {
            k: (source, reads)
            for k, (source, reads) in enumerate(zip(vertex.inputs, own.reads, strict=True))
            if reads is not None and (source in decisions or source in given)
        }
        hides = hidden(price, vertex, own, items, len(fetched))
        scatter = price.reduce_scatter(own, vertex.elements, state_bytes(graph, vertex), item)
        costs.aggregate[name] = beyond(scatter, hides)[0, 0].item()
        costs.join[name] = 0
        costs.repartition[name] = _kept(price, decision.layouts, vertex)
        for k, (source, reads) in fetched.items():
            held = decisions[source].layouts if source in decisions else given[source]
            cost = beyond(price.fetch(held.cuts, reads.cuts, items[k]).min(), hides)
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

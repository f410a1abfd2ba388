"""What a plan costs, vertex by vertex and edge by edge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.graph.ops import Input
from eindecomp.graph.state_types import state_bytes
from eindecomp.planner.costs import paper_bound as paper
from eindecomp.planner.space.decision import Decision, decided_choices
from eindecomp.planner.space.view import is_planned, view_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.planner.costs.price import Price
    from eindecomp.planner.space.cut import Cut

Number = int | float


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost by its parts, in elements, bytes or seconds, depending on the objective.

    `join` is what reading inputs costs (under the paper's objective, everything that kernels read),
    `aggregate` is reducing partial results, `repartition` fetching what other vertices made and
    keeping a second layout, `compute` the kernel calls.
    """

    join: dict[str, Number] = field(default_factory=dict[str, Number])
    aggregate: dict[str, Number] = field(default_factory=dict[str, Number])
    repartition: dict[str, Number] = field(default_factory=dict[str, Number])
    compute: dict[str, Number] = field(default_factory=dict[str, Number])
    edges: dict[tuple[str, str, int], Number] = field(
        default_factory=dict[tuple[str, str, int], Number]
    )
    """What (maker, reader, which of its inputs) costs; part of `join` or `repartition`."""

    @property
    def total(self) -> Number:
        """All of it."""
        return sum(self.of(name) for name in self.join)

    def of(self, name: str) -> Number:
        """What one vertex costs."""
        parts = (self.join, self.aggregate, self.repartition, self.compute)
        return sum(part.get(name, 0) for part in parts)


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
    given: Mapping[str, Cut],
    inputs: str,
) -> Cost:
    """What decisions cost at given prices."""
    costs = Cost()
    for name, decision in decisions.items():
        vertex = graph[name]
        view = view_of(graph, vertex)
        own = decided_choices(view, price.mesh, decision)
        items = tuple(graph[n].dtype.itemsize for n in vertex.inputs)
        costs.compute[name] = price.compute(vertex, own, items)[0].item()
        item = vertex.dtype.itemsize
        scatter = price.reduce_scatter(own, vertex.elements, state_bytes(graph, vertex), item)
        costs.aggregate[name] = scatter[0, 0].item()
        costs.join[name] = costs.repartition[name] = 0
        if decision.second is not None:
            move = price.fetch([decision.home], [decision.second], vertex.dtype.itemsize)
            costs.repartition[name] += move[0, 0].item()
        for k, (source, reads) in enumerate(zip(vertex.inputs, own.reads, strict=True)):
            if reads is None:
                continue
            if source in decisions:
                held = [decisions[source].home]
                if (second := decisions[source].second) is not None:
                    held.append(second)
                cost = price.fetch(held, reads.cuts, items[k]).min().item()
                costs.repartition[name] += cost
            elif source in given:
                cost = price.fetch([given[source]], reads.cuts, items[k])[0, 0].item()
                costs.join[name] += cost
            elif isinstance(graph[source].op, Input) and inputs == "sharded":
                cost = price.gather_input(reads.cuts, items[k])[0].item()
                costs.join[name] += cost
            else:
                continue
            costs.edges[source, name, k] = cost
    return costs

"""The model of the paper's objective: how many pieces each label is cut into, vertex by vertex."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.planner import paper
from eindecomp.planner.network import Network
from eindecomp.planner.viable import viable_parts
from eindecomp.planner.view import View, is_planned, view_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.solve.problem import Problem

    Ints = NDArray[np.int64]
    Restrict = Callable[[Vertex, View, Ints], Ints]


@dataclass(frozen=True)
class Pieces:
    """The viable partition vectors of every planned vertex, and what they cost."""

    graph: Graph
    views: dict[str, View]
    vectors: dict[str, Ints]
    _handovers: dict[Any, Ints] = field(default_factory=dict[Any, Any], compare=False)

    @staticmethod
    def of(graph: Graph, factors: tuple[int, ...], restrict: Restrict | None = None) -> Pieces:
        """All viable vectors, or those that `restrict` leaves of them."""
        views = {v.name: view_of(graph, v) for v in graph.vertices.values() if is_planned(v)}
        vectors = {n: viable_parts(view.sizes, factors) for n, view in views.items()}
        if restrict is not None:
            vectors = {n: restrict(graph[n], views[n], rows) for n, rows in vectors.items()}
        return Pieces(graph, views, vectors)

    def unary(self, name: str) -> Ints:
        """The join and aggregation costs of a vertex's vectors."""
        view, rows = self.views[name], self.vectors[name]
        join = paper.join_cost(self.graph, self.graph[name], view, rows)
        return join + paper.aggregate_cost(view, rows)

    @cached_property
    def edges(self) -> list[tuple[str, str, int]]:
        """(maker, reader, which of its inputs) for every tensor handed over."""
        return [
            (name, reader, k)
            for reader, view in self.views.items()
            for k, name in enumerate(self.graph[reader].inputs)
            if name in self.views and view.reads[k] is not None
        ]

    def handover(self, maker: str, reader: str, k: int) -> Ints:
        """The repartition costs between the maker's vectors and the reader's."""
        made = (self.views[maker], self.vectors[maker])
        view, rows = self.views[reader], self.vectors[reader]
        key = (made[0], id(made[1]), view, id(rows), k)
        if key not in self._handovers:
            dims = view.reads[k]
            assert dims is not None  # noqa: S101 - edges are of inputs that are read
            self._handovers[key] = paper.repartition_table(made, (view, dims, rows))
        return self._handovers[key]

    def problem(self) -> Problem:
        """What the solver takes: one variable per vertex, in the order of `views`."""
        network = Network()
        unary: dict[Any, Ints] = {}
        variable: dict[str, int] = {}
        keys = {name: self._key(name) for name in self.views}
        for name, key in keys.items():
            if key not in unary:
                unary[key] = self.unary(name)
            variable[name] = network.variable(unary[key])
        for maker, reader, k in self.edges:
            network.edge(
                variable[maker],
                variable[reader],
                (keys[maker], keys[reader], k),
                lambda m=maker, r=reader, k=k: self.handover(m, r, k),
            )
        return network.problem()

    def _key(self, name: str) -> tuple[Any, ...]:
        """Equal for vertices with equal costs."""
        given = tuple(paper.is_read(self.graph, n) for n in self.graph[name].inputs)
        return self.views[name], given, self.vectors[name].tobytes()

    def parts(self, choice: Ints) -> dict[str, tuple[int, ...]]:
        """The vector of every vertex under a choice of the problem."""
        picked: list[int] = choice.tolist()
        return {
            name: tuple(self.vectors[name][k].tolist())
            for name, k in zip(self.views, picked, strict=True)
        }

"""The model of the paper's objective: each vertex chooses one of its partition vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.errors import PlanError
from eindecomp.layout.view import View, is_planned, view_of
from eindecomp.planner.costs import paper_bound as paper
from eindecomp.planner.model.tables import CostTables
from eindecomp.planner.space.alike import interchangeable_labels
from eindecomp.planner.space.viable import viable_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.solve import Problem

    Ints = NDArray[np.int64]
    Restrict = Callable[[Vertex, View, Ints], Ints]


@dataclass(frozen=True)
class BoundModel:
    """The viable partition vectors of every planned vertex, and what they cost."""

    graph: Graph
    views: dict[str, View]
    vectors: dict[str, Ints]
    _handovers: dict[Any, Ints] = field(default_factory=dict[Any, Any], compare=False)

    @staticmethod
    def of(
        graph: Graph,
        factors: tuple[int, ...],
        restrict: Restrict | None = None,
        *,
        even: bool = False,
    ) -> BoundModel:
        """All viable vectors, or those of them that `restrict` allows."""
        views = {v.name: view_of(graph, v) for v in graph.vertices.values() if is_planned(v)}
        # A restriction may tell apart labels that are otherwise interchangeable.
        alike = interchangeable_labels(graph) if restrict is None else dict.fromkeys(views, ())
        vectors: dict[str, Ints] = {}
        for name, view in views.items():
            try:
                rows = viable_parts(view.sizes, factors, alike[name], even=even)
            except PlanError as error:
                raise PlanError(f"{graph[name]}: {error}") from None
            vectors[name] = rows if restrict is None else restrict(graph[name], view, rows)
        return BoundModel(graph, views, vectors)

    @property
    def cells(self) -> int:
        """The number of costs in the tables of all tensors that one vertex passes to another."""
        own = {name: (view, len(self.vectors[name])) for name, view in self.views.items()}
        tables = {(own[maker], own[reader], k) for maker, reader, k in self.edges}
        return sum(made[1] * read[1] for made, read, _ in tables)

    def fitting(self, cells: int) -> BoundModel:
        """The same model, without its costliest vectors if its tables are larger than `cells`."""
        kept, most = self, max(map(len, self.vectors.values()), default=0)
        keys = {name: self._key(name) for name in self.views}
        while kept.cells > cells and most > 1:
            most //= 2
            cheapest = {key: self._cheapest(name, most) for name, key in keys.items()}
            vectors = {name: cheapest[key] for name, key in keys.items()}
            kept = BoundModel(self.graph, self.views, vectors)
        return kept

    def _cheapest(self, name: str, most: int) -> Ints:
        rows = self.vectors[name]
        if len(rows) <= most:
            return rows
        return rows[np.sort(np.argsort(self.unary(name), kind="stable")[:most])]

    def unary(self, name: str) -> Ints:
        """The join and aggregation costs of a vertex's vectors."""
        view, rows = self.views[name], self.vectors[name]
        join = paper.join_cost(self.graph, self.graph[name], view, rows)
        return join + paper.aggregate_cost(view, rows)

    @cached_property
    def edges(self) -> list[tuple[str, str, int]]:
        """(maker, reader, which of its inputs) for every tensor that a planned vertex reads."""
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

    def problem(self, whole: BoundModel | None = None) -> Problem:
        """What the solver takes: one variable per vertex, in the order of `views`.

        With `whole`, the model that these vectors were taken from, it is a problem whose optimum no
        choice of all vectors undercuts: a vertex that has lost some pays its least own cost.
        """
        tables = CostTables()
        unary: dict[Any, Ints] = {}
        variable: dict[str, int] = {}
        every = self if whole is None else whole
        lossy = {n for n, rows in self.vectors.items() if len(rows) < len(every.vectors[n])}
        keys = {name: self._key(name) for name in self.views}
        for name, key in keys.items():
            if key not in unary:
                unary[key] = every.unary(name)
            costs = unary[key]
            variable[name] = tables.variable(costs.min(keepdims=True) if name in lossy else costs)
        for maker, reader, k in self.edges:
            if maker not in lossy and reader not in lossy:
                tables.table(
                    (variable[maker], variable[reader]),
                    (keys[maker], keys[reader], k),
                    lambda m=maker, r=reader, k=k: self.handover(m, r, k),
                )
        return tables.problem()

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

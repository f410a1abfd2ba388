"""Plans for the paper's objective: numbers of pieces first, then mesh axes for them.

`choose_on_tree` and `choose_linearly` are the paper's own algorithms: the first is optimal on a
tree, the second a heuristic for any graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from eindecomp.errors import PlanError
from eindecomp.graph.graph import Graph
from eindecomp.graph.vertex import Vertex
from eindecomp.layout.view import View, planned_views
from eindecomp.planner import budgets
from eindecomp.planner.costs.cost import (
    aggregate_cost,
    is_read,
    join_cost,
    paper_cost,
    repartition_table,
)
from eindecomp.planner.costs.price import PriceInBytes
from eindecomp.planner.model.tables import CostTables
from eindecomp.planner.options import Chosen, Deferred, Options, unproved
from eindecomp.planner.search.choose import choose
from eindecomp.planner.search.relaxation import relaxed_of
from eindecomp.planner.search.search import Outcome, Search
from eindecomp.planner.space.layout_rules import interchangeable_labels
from eindecomp.planner.space.viable import FixedParts, viable_parts
from eindecomp.solve import Problem
from eindecomp.solve.minimize import minimize
from eindecomp.solve.problem.arrays import Ints

Rows = Callable[[Vertex, View], Ints | None]
"""The partition vectors that a vertex may take; None for all viable ones."""


def minimize_bound(options: Options) -> Chosen:
    """Choose how many pieces every label is cut into; axes are chosen when first needed."""
    if options.rules.pinned or options.rules.tie or options.memory is not None:
        raise PlanError(
            "objective 'bound' has no layouts: pin, tie and memory need objective 'bytes' or 'time'"
        )
    mesh = options.mesh
    restrict = None if options.restriction is None else options.vectors
    every = BoundModel.of(options.graph, mesh.sizes, restrict, even=mesh.cuts_evenly)
    fitting = every.fitting(budgets.ALL_CELLS // 4)
    half = options.time_limit / 2
    choice, bound, method = _choose(
        options, fitting, options.time_limit if fitting is every else half
    )
    vectors = fitting.parts(choice)
    costs = paper_cost(options.graph, vectors)
    if options.solver == "tree":
        bound = costs.total
    if fitting is not every:
        bound = minimize(fitting.problem(every), time_limit=half, keep_on_interrupt=False).bound
        if options.solver == "exact" and bound < costs.total:
            raise unproved(costs.total, bound)
    parts = {
        name: dict(zip(view.labels, vectors[name], strict=True))
        for name, view in fitting.views.items()
    }
    outcome = cache(lambda: _axes(options, vectors))
    names = tuple(fitting.views)
    decisions = Deferred(lambda: {name: outcome().decisions[name] for name in names})
    given = Deferred(lambda: outcome().given)
    return Chosen(options.graph, parts, decisions, given, costs, bound, method)


def _choose(options: Options, model: BoundModel, time_limit: float) -> tuple[Ints, float, str]:
    """A choice of vectors, a bound on the cost of any choice, and the method that was used."""
    if options.solver == "tree":
        return choose_on_tree(model), 0, "tree"
    if options.solver == "linear":
        return choose_linearly(model), 0, "linear"
    solution = minimize(
        model.problem(),
        method="exact" if options.solver == "exact" else "auto",
        time_limit=time_limit,
        on_event=options.on_event,
        keep_on_interrupt=False,
    )
    return solution.choice, solution.bound, solution.method


def _axes(options: Options, vectors: Mapping[str, tuple[int, ...]]) -> Outcome:
    """Axes and homes for given numbers of pieces, so that the fewest bytes move."""
    mesh = options.mesh
    restriction = FixedParts(vectors, mesh.devices)
    search = Search(options.graph, PriceInBytes(mesh), options.rules, restriction)
    return choose(search, relaxed_of(search, budgets.AXES_SECONDS), budgets.AXES_SECONDS)


def choose_on_tree(model: BoundModel) -> Ints:
    """Choose bottom up; optimal for a graph in which every tensor is read at most once."""
    readers: dict[str, str] = {}
    for maker, reader, _ in model.edges:
        if maker in readers:
            raise PlanError(
                f"the graph is not a tree: {model.graph[maker]} is read by {readers[maker]} and "
                f"{reader}; solver='exact' plans any graph"
            )
        readers[maker] = reader
    least = {name: model.unary(name) for name in model.views}
    came: dict[str, tuple[str, Ints]] = {}
    for maker, reader, k in model.edges:
        total = least[maker][:, None] + model.handover(maker, reader, k)
        came[maker] = (reader, total.argmin(axis=0))
        least[reader] = least[reader] + total.min(axis=0)
    chosen: dict[str, int] = {}
    for name in reversed(model.views):
        if name in came:
            reader, best = came[name]
            chosen[name] = int(best[chosen[reader]])
        else:
            chosen[name] = int(least[name].argmin())
    return np.array([chosen[name] for name in model.views], dtype=np.int64)


def choose_linearly(model: BoundModel) -> Ints:
    """The paper's linearisation: the longest path first, then the longest of what is left.

    Along a path the dynamic program is exact; costs between paths are ignored.
    """
    before: dict[str, dict[str, list[int]]] = {name: {} for name in model.views}
    for maker, reader, k in model.edges:
        before[reader].setdefault(maker, []).append(k)
    chosen: dict[str, int] = {}
    while len(chosen) < len(model.views):
        path = _longest_path(before, chosen)
        chosen.update(_along(model, before, path))
    return np.array([chosen[name] for name in model.views], dtype=np.int64)


def _longest_path(before: dict[str, dict[str, list[int]]], chosen: dict[str, int]) -> list[str]:
    """The path with the most vertices that have not been chosen yet."""
    length: dict[str, int] = {}
    came: dict[str, str | None] = {}
    for name, makers in before.items():
        if name in chosen:
            continue
        best = max((m for m in makers if m not in chosen), key=lambda m: length[m], default=None)
        came[name] = best
        length[name] = 1 + (length[best] if best is not None else 0)
    last: str | None = max(length, key=lambda n: length[n])
    path: list[str] = []
    while last is not None:
        path.append(last)
        last = came[last]
    return path[::-1]


def _along(
    model: BoundModel, before: dict[str, dict[str, list[int]]], path: list[str]
) -> dict[str, int]:
    """The best choices along a path, by dynamic programming."""
    least = model.unary(path[0])
    came: list[Ints] = []
    for maker, reader in pairwise(path):
        total = least[:, None] + sum(
            model.handover(maker, reader, k) for k in before[reader][maker]
        )
        came.append(total.argmin(axis=0))
        least = total.min(axis=0) + model.unary(reader)
    chosen = {path[-1]: int(least.argmin())}
    for name, after, best in zip(path[-2::-1], path[:0:-1], reversed(came), strict=True):
        chosen[name] = int(best[chosen[after]])
    return chosen


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
        restrict: Rows | None = None,
        *,
        even: bool = False,
    ) -> BoundModel:
        """All viable vectors, or those that `restrict` gives for a vertex."""
        views = dict(planned_views(graph))
        # A restriction may tell apart labels that are otherwise interchangeable.
        alike = interchangeable_labels(graph) if restrict is None else dict.fromkeys(views, ())
        vectors: dict[str, Ints] = {}
        for name, view in views.items():
            try:
                rows = None if restrict is None else restrict(graph[name], view)
                if rows is None:
                    rows = viable_parts(view.sizes, factors, alike[name], even=even)
            except PlanError as error:
                raise PlanError(f"{graph[name]}: {error}") from None
            vectors[name] = rows
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
            cheapest: dict[Any, Ints] = {}
            for name, key in keys.items():
                if key not in cheapest:
                    order = np.argsort(self.unary(name), kind="stable")
                    cheapest[key] = self.vectors[name][np.sort(order[:most])]
            vectors = {name: cheapest[key] for name, key in keys.items()}
            kept = BoundModel(self.graph, self.views, vectors)
        return kept

    def unary(self, name: str) -> Ints:
        """The join and aggregation costs of a vertex's vectors."""
        view, rows = self.views[name], self.vectors[name]
        join = join_cost(self.graph, self.graph[name], view, rows)
        return join + aggregate_cost(view, rows)

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
            self._handovers[key] = repartition_table(made, (view, dims, rows))
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
        given = tuple(is_read(self.graph, n) for n in self.graph[name].inputs)
        return self.views[name], given, self.vectors[name].tobytes()

    def parts(self, choice: Ints) -> dict[str, tuple[int, ...]]:
        """The vector of every vertex under a choice of the problem."""
        picked: list[int] = choice.tolist()
        return {
            name: tuple(self.vectors[name][k].tolist())
            for name, k in zip(self.views, picked, strict=True)
        }

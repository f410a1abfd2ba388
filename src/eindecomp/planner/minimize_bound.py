"""Plans for the paper's objective: numbers of pieces first, then mesh axes for them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.errors import PlanError
from eindecomp.planner import budgets
from eindecomp.planner.costs.cost import paper_cost
from eindecomp.planner.costs.price import PriceInBytes
from eindecomp.planner.model.bound import BoundModel
from eindecomp.planner.options import Chosen, Deferred, unproved
from eindecomp.planner.paper_algorithms import choose_linearly, choose_on_tree
from eindecomp.planner.search.choose import choose
from eindecomp.planner.search.relaxation import relax
from eindecomp.planner.search.search import Search
from eindecomp.planner.space.restriction import FixedParts
from eindecomp.solve.minimize import minimize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.view import View
    from eindecomp.planner.options import Options
    from eindecomp.planner.search.search import Outcome

    Ints = NDArray[np.int64]


def minimize_bound(options: Options) -> Chosen:
    """Choose how many pieces every label is cut into; axes are chosen when first needed."""
    if options.rules.pinned or options.rules.tie or options.memory is not None:
        raise PlanError(
            "objective 'bound' has no layouts: pin, tie and memory need objective 'bytes' or 'time'"
        )

    def restrict(vertex: Vertex, view: View, rows: Ints) -> Ints:
        kept = options.vectors(vertex, view)
        return rows if kept is None else kept

    restricted = options.restriction is not None
    every = BoundModel.of(
        options.graph,
        options.mesh.sizes,
        restrict if restricted else None,
        even=options.mesh.cuts_evenly,
    )
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
    return Chosen(parts, decisions, Deferred(lambda: outcome().given), costs, bound, method)


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
    graph, mesh, rules = options.graph, options.mesh, options.rules

    def rows_of(vertex: Vertex, view: View) -> Ints | None:
        del view
        return np.array([vectors[vertex.name]]) if vertex.name in vectors else None

    search = Search(graph, PriceInBytes(mesh), rules, FixedParts(vectors, mesh.devices))
    return choose(
        search, relax(graph, mesh, rules, rows_of, budgets.AXES_SECONDS), budgets.AXES_SECONDS
    )

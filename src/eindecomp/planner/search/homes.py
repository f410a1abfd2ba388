"""Homes for the inputs of a plan in which everything else is decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.errors import PlanError, UnsolvedError
from eindecomp.graph.ops import Input
from eindecomp.planner.search.search import Search, solve
from eindecomp.planner.space.choices import decided_choices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.view import View
    from eindecomp.planner.costs.price import Price
    from eindecomp.planner.space.choices import Choices, Decision, Layouts
    from eindecomp.planner.space.layout_rules import LayoutRules


def homes_for(
    graph: Graph, price: Price, rules: LayoutRules, decisions: Mapping[str, Decision]
) -> dict[str, Layouts]:
    """The cheapest home and second layout of every input that has one."""
    search = Search(graph, price, rules)

    def of(vertex: Vertex, view: View) -> Choices:
        if isinstance(vertex.op, Input):
            return search.every_choice(vertex, view)
        return decided_choices(view, price.mesh, decisions[vertex.name])

    try:
        return solve(search, of).given
    except UnsolvedError as error:
        raise PlanError(f"found no homes for the inputs: {error}") from None

"""The vertex that is to be drawn, as it is given: by its name, or itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.errors import PlanError, quote
from eindecomp.graph.vertex import Vertex

if TYPE_CHECKING:
    from eindecomp.planner.plan import Plan


def named(plan: Plan, tensor: Vertex | str) -> Vertex:
    """The vertex of a plan's graph with a name, or with that of a vertex.

    Planning may rewrite a graph, so a vertex of the user's own graph counts by its name.
    """
    name = tensor.name if isinstance(tensor, Vertex) else tensor
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"what to draw is given as a tensor or its name, not {quote(name)}")
    return plan.graph[name]

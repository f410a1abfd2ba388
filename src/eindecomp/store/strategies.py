"""The strategy of a plan file, and the check that its decisions keep to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from eindecomp.errors import PlanError
from eindecomp.layout.view import view_of
from eindecomp.planner.space.strategy import StrategyForm, strategy_form, strategy_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.space.strategy import AnyStrategy
    from eindecomp.store.field import Field


def read_strategy(
    graph: Graph, devices: int, field: Field
) -> tuple[StrategyForm | None, AnyStrategy | None]:
    """A strategy as it is given, and as it restricts plans."""
    if field.value is None:
        return None, None
    if isinstance(field.value, list):
        given = tuple(label.text() for label in field.items())
    elif isinstance(field.value, dict):
        given = cast("dict[str, Any]", field.value)
    else:
        given = field.text()
    try:
        strategy = strategy_of(given, graph, devices)
    except PlanError as error:
        raise field.wrong(str(error)) from None
    return strategy_form(given), strategy


def check_cuts(
    graph: Graph,
    mesh: Mesh,
    strategy: AnyStrategy,
    parts: Mapping[str, Mapping[str, int]],
    loose: Collection[str],
) -> None:
    """Check that vertices are cut as a strategy says, but for those whose pins forbid it."""
    for name, own in parts.items():
        vertex = graph[name]
        rows = np.array([list(own.values())], dtype=np.int64)
        if name not in loose and not strategy(vertex, view_of(graph, vertex), rows, mesh).all():
            raise PlanError(f"vertices.{name}.assignment: {vertex} is not cut as the strategy says")

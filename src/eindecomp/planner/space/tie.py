"""Ties as the planner takes them: those of the graph, or the user's own in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eindecomp.errors import OperandError, PlanError
from eindecomp.graph.checks import check_tie
from eindecomp.planner.space.pin import check_can_be_cut, pinned_cuts

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.layout.cut import Cut
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.space.pin import Pin


def checked_ties(graph: Graph, tie: Mapping[str, str] | None) -> dict[str, str]:
    """The ties that replace those of a graph; None keeps them."""
    if tie is None:
        return dict(graph.ties)
    if not isinstance(tie, Mapping) or not _are_names(tie):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"a tie is {{input: result}}, not {tie!r}")
    outputs = [vertex.name for vertex in graph.outputs]
    checked: dict[str, str] = {}
    for name, result in tie.items():
        try:
            check_tie(graph.vertices, outputs, checked, name, result)
        except OperandError as error:
            raise PlanError(f"tie: {error}") from None
        checked[name] = result
    return checked


def _are_names(tie: Mapping[Any, Any]) -> bool:
    return all(isinstance(name, str) for pair in tie.items() for name in pair)


def pinned_homes(
    graph: Graph,
    mesh: Mesh,
    pin: Pin | None,
    tie: Mapping[str, str],
    written: Graph | None = None,
) -> dict[str, tuple[Cut, ...]]:
    """The layouts that pins allow, where those of a tied input are those of its result.

    Both have one home. A pin is checked as it was given, so that errors name what the user wrote.
    """
    cuts = pinned_cuts(graph, mesh, pin, written)
    for name, result in tie.items():
        if name not in cuts:
            continue
        own = cuts.pop(name)
        if cuts.setdefault(result, own) != own:
            raise PlanError(
                f"pin: {name!r} and {result!r} are tied and have one home: pin only one of them"
            )
        check_can_be_cut(graph, mesh, graph[result], own, tied=graph[name])
    return cuts

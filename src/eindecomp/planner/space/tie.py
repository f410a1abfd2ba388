"""Ties as the planner takes them: those of the graph, or the user's own in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eindecomp.errors import OperandError, PlanError
from eindecomp.graph.ties import check_tie

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
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


def pins_on_results(graph: Graph, pin: Pin | None, tie: Mapping[str, str]) -> Pin | None:
    """The pins with those of tied inputs moved to the results that they are tied to.

    Both have one home; a dimension may have another label in each.
    """
    if not isinstance(pin, Mapping):
        return pin  # checked with the other pins
    moved = dict(pin)
    for name, result in tie.items():
        wanted = moved.get(name)
        if not isinstance(wanted, Mapping) or not wanted.keys() <= {*graph[name].labels}:
            continue
        labels = dict(zip(graph[name].labels, graph[result].labels, strict=True))
        own = {labels[label]: given for label, given in wanted.items()}
        if moved.setdefault(result, own) != own:
            raise PlanError(
                f"pin: {name!r} and {result!r} are tied and have one home: pin only one of them"
            )
        del moved[name]
    return moved

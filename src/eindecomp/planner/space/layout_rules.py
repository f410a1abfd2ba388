"""Rules on where tensors lie: free or sharded inputs, pins, and the ties of state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eindecomp.errors import OperandError, PlanError
from eindecomp.graph.checks import check_tie
from eindecomp.graph.ops import Input
from eindecomp.layout.cut import outer_cut
from eindecomp.layout.view import is_planned, view_of
from eindecomp.planner.space.pin import check_can_be_cut, pinned_cuts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.cut import Cut
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.space.pin import Pin


@dataclass(frozen=True)
class LayoutRules:
    """Which inputs have a home, and which layouts tensors may have."""

    inputs: str = "free"
    """Whether inputs that nothing else is said about are "free" or "sharded"."""
    pinned: Mapping[str, tuple[Cut, ...]] = field(default_factory=dict[str, Any])
    """The layouts that pinned tensors may have."""
    tie: Mapping[str, str] = field(default_factory=dict[str, str])
    """For each tied input the result whose home it has: what the last run has left there."""
    gathered: frozenset[str] = frozenset()
    """Inputs that are fetched for every use anew, never kept in a second layout."""

    def has_home(self, vertex: Vertex) -> bool:
        """Whether a tensor lies somewhere and is fetched from there.

        Free inputs are wherever they are wanted, and fills are generated where they are read.
        """
        if isinstance(vertex.op, Input):
            return self.inputs == "sharded" or vertex.name in self.pinned or vertex.name in self.tie
        return is_planned(vertex)

    def chooses(self, vertex: Vertex) -> bool:
        """Whether a layout is chosen for a vertex: it has a home, and not that of another one."""
        return self.has_home(vertex) and vertex.name not in self.tie

    def chosen(self, graph: Graph) -> Iterator[Vertex]:
        """The vertices for which a layout is chosen, without inputs that nobody reads."""
        read = read_tensors(graph)
        for vertex in graph.vertices.values():
            unread = isinstance(vertex.op, Input) and vertex.name not in read
            if self.chooses(vertex) and not (unread and vertex.name not in self.pinned):
                yield vertex

    def outer(self, axes: int) -> LayoutRules:
        """The same on a mesh that has only this many outer axes."""
        pinned = {
            name: tuple(dict.fromkeys(outer_cut(cut, axes) for cut in cuts))
            for name, cuts in self.pinned.items()
        }
        return replace(self, pinned=pinned)


def read_tensors(graph: Graph) -> set[str]:
    """The names of all tensors of which some vertex reads elements."""
    return {
        name
        for vertex in graph.vertices.values()
        if is_planned(vertex)
        for name, dims in zip(vertex.inputs, view_of(graph, vertex).reads, strict=True)
        if dims is not None
    }


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

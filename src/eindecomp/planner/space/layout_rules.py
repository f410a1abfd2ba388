"""What is said about where tensors lie: free or sharded inputs, pins and ties."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eindecomp.graph.ops import Input
from eindecomp.layout.cut import outer_cut
from eindecomp.layout.view import is_planned, view_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.cut import Cut


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

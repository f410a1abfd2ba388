"""Rules on where tensors lie (free or sharded inputs, pins, the ties of state), and what is alike.

In a model of many equal layers, a good plan treats most of them alike. A search in which those
choose together has as many choices as one layer has, however many layers there are.

If no tensor that other vertices make or read has a label, no other vertex sees how it is cut. In a
sum over thirty labels of an input, it makes no difference which six of them are cut in two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from eindecomp.errors import OperandError, PlanError
from eindecomp.graph.checks import check_tie
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill, Input
from eindecomp.graph.turns import Turns
from eindecomp.graph.vertex import Vertex
from eindecomp.layout.cut import Cut, outer_cut
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.view import Dims, View, is_planned, view_of
from eindecomp.planner.space.pending import Waiting
from eindecomp.planner.space.pin import Pin, check_can_be_cut, pinned_cuts


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
    waiting: Mapping[str, Waiting] = field(default_factory=dict[str, Waiting])
    """How vertices may read operands in parts, and which results may stay so."""
    turns: tuple[Turns, ...] = ()
    """What is computed in turns: all vertices of one cut the label that is divided alike."""
    turn_bytes: int = 0
    """What a device may hold in one turn of a tensor that is never there as a whole."""

    @cached_property
    def labels_in_turns(self) -> dict[str, str]:
        """The vertices that are computed in turns, with the label that is divided."""
        return {name: label for turns in self.turns for name, label in turns.labels.items()}

    @cached_property
    def within_turns(self) -> frozenset[str]:
        """Those of them that are never there as a whole."""
        return frozenset(n for turns in self.turns for n in turns.labels.keys() - turns.outputs)

    def view_of(self, graph: Graph, vertex: Vertex) -> View:
        """The view of a vertex with its ways to read operands in parts."""
        view, name = view_of(graph, vertex), vertex.name
        if name in self.labels_in_turns:
            view = replace(view, turn=self.labels_in_turns[name])
        return self.waiting[name].of(view) if name in self.waiting else view

    def has_home(self, vertex: Vertex) -> bool:
        """Whether a tensor lies somewhere and is fetched from there.

        Free inputs are wherever they are wanted, and fills are generated where they are read.
        """
        if isinstance(vertex.op, Input):
            return self.inputs == "sharded" or vertex.name in self.pinned or vertex.name in self.tie
        return is_planned(vertex)

    def chosen(self, graph: Graph) -> Iterator[Vertex]:
        """The vertices for which a layout is chosen: those with a home, and not that of another.

        Inputs that nobody reads are left out.
        """
        read = read_tensors(graph).union(self.pinned)
        for vertex in graph.vertices.values():
            unread = isinstance(vertex.op, Input) and vertex.name not in read
            if self.has_home(vertex) and vertex.name not in self.tie and not unread:
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
    is_mapping = isinstance(tie, Mapping)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_mapping or not all(isinstance(name, str) for pair in tie.items() for name in pair):  # pyright: ignore[reportUnnecessaryIsInstance]
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


def alike_vertices(graph: Graph, rules: LayoutRules, far: int) -> dict[str, str]:
    """For each vertex and input the first that looks the same, up to so many steps away.

    At least 1: what a vertex can choose depends on what it reads.

    >>> import eindecomp as ed
    >>> from eindecomp.planner.space.layout_rules import LayoutRules
    >>> lines = [f"X{k + 1}[i] <- exp(X{k}[i])" for k in range(6)]
    >>> graph = ed.parse("\\n".join(["input X0[i: 8]", *lines, "output X6"]))
    >>> alike_vertices(graph, LayoutRules(), 1)
    {'X0': 'X0', 'X1': 'X1', 'X2': 'X2', 'X3': 'X2', 'X4': 'X2', 'X5': 'X5', 'X6': 'X6'}
    """
    made_for = {result: name for name, result in rules.tie.items()}
    readers: dict[str, list[tuple[str, int]]] = {name: [] for name in graph.vertices}
    for vertex in graph.vertices.values():
        dims = () if isinstance(vertex.op, Fill) else view_of(graph, vertex).reads
        for k, (name, read) in enumerate(zip(vertex.inputs, dims, strict=True)):
            if read is not None:
                readers[name].append((vertex.name, k))
    kinds = _numbered({
        name: (_kind(graph, rules, vertex), len(readers[name]))
        for name, vertex in graph.vertices.items()
    })  # fmt: skip
    for _ in range(far):
        kinds = _numbered({
            name: (
                kind,
                tuple(kinds[source] for source in graph[name].inputs),
                frozenset(Counter((kinds[each], k) for each, k in readers[name]).items()),
                kinds.get(rules.tie.get(name, "")),
                kinds.get(made_for.get(name, "")),
            )
            for name, kind in kinds.items()
        })  # fmt: skip
    first: dict[int, str] = {}
    return {name: first.setdefault(kind, name) for name, kind in kinds.items()}


def _kind(graph: Graph, rules: LayoutRules, vertex: Vertex) -> Hashable:
    """What a vertex is by itself."""
    return (
        type(vertex.op),
        vertex.shape if isinstance(vertex.op, Fill) else view_of(graph, vertex),
        vertex.dtype,
        vertex in graph.outputs,
        rules.pinned.get(vertex.name),
        rules.labels_in_turns.get(vertex.name),
        rules.waiting.get(vertex.name),
        vertex.name in rules.tie,
        vertex.name in rules.gathered,
    )


def _numbered(kinds: Mapping[str, Hashable]) -> dict[str, int]:
    """Equal numbers for equal kinds."""
    numbers: dict[Hashable, int] = {}
    return {name: numbers.setdefault(kind, len(numbers)) for name, kind in kinds.items()}


Groups = tuple[tuple[int, ...], ...]


def interchangeable_labels(graph: Graph, rules: LayoutRules | None = None) -> dict[str, Groups]:
    """For each vertex, its groups of two or more interchangeable labels; an input has none.

    >>> import eindecomp as ed
    >>> graph = ed.parse("input X[i: 8, j: 8, k: 4]\\nS[] <- sum X[i,j,k]\\noutput S")
    >>> interchangeable_labels(graph)
    {'X': (), 'S': ((0, 1),)}
    """
    rules = LayoutRules() if rules is None else rules
    planned = [vertex for vertex in graph.vertices.values() if is_planned(vertex)]
    made = {vertex.name for vertex in planned}
    reads = Counter(name for vertex in planned for name in vertex.inputs)
    shared = (made & reads.keys()).union(rules.pinned, rules.tie, rules.tie.values())
    # The home of an input that only one vertex reads can follow whatever that one does.
    shared |= {v.name for v in graph.inputs if reads[v.name] > 1 and rules.has_home(v)}
    groups: dict[str, Groups] = {vertex.name: () for vertex in graph.inputs}
    return groups | {v.name: _groups(v, view_of(graph, v), shared) for v in planned}


def _groups(vertex: Vertex, view: View, shared: Collection[str]) -> Groups:
    tensors: list[tuple[str, Dims]] = [
        (name, dims)
        for name, dims in zip(vertex.inputs, view.reads, strict=True)
        if dims is not None
    ]
    tensors.append((vertex.name, view.output))
    groups: dict[object, list[int]] = {}
    moving = {label for _, own in tensors for d in own if d.image for label in d.labels}
    for i, label in enumerate(view.labels):
        if label in moving:
            continue
        dims = [[d for d in own if d.label == label] for _, own in tensors]
        if any(own and name in shared for (name, _), own in zip(tensors, dims, strict=True)):
            continue
        kind = tuple(tuple(sorted((d.start, d.stop, d.scale) for d in own)) for own in dims)
        groups.setdefault((view.sizes[i], kind), []).append(i)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)

"""Checks that the vertices of a plan file are cut, and its tensors lie, as its options say."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.errors import PlanError
from eindecomp.graph.ops import Input
from eindecomp.layout.cut import pieces_by
from eindecomp.layout.view import view_of
from eindecomp.planner.space.layout_rules import read_tensors
from eindecomp.planner.space.pin import agrees
from eindecomp.planner.space.viable import most_pieces

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.space.choices import Decision, Layouts
    from eindecomp.planner.space.layout_rules import LayoutRules
    from eindecomp.planner.space.pin import Pins
    from eindecomp.planner.space.strategy import AnyStrategy


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


def check_homes(
    graph: Graph,
    mesh: Mesh,
    rules: LayoutRules,
    pin: Pins,
    decisions: Mapping[str, Decision],
    given: Mapping[str, Layouts],
) -> None:
    """Check that inputs have a home if they must, and that pins, ties and strategy are kept."""
    read = read_tensors(graph)
    for vertex in graph.inputs:
        name = vertex.name
        if name in given and not rules.has_home(vertex):
            raise PlanError(f"given.{name}: has a layout, but the input is free")
        if name not in given:
            if rules.has_home(vertex) and (name in read or name in rules.pinned):
                raise PlanError(f"given.{name}: is missing, but the input has a home")
        elif name in rules.tie:
            if given[name].home != decisions[rules.tie[name]].home:
                raise PlanError(
                    f"given.{name}: does not lie where {rules.tie[name]!r}, to which it is tied, is"
                )
        elif name not in rules.pinned and not _is_sharded(graph, mesh, vertex, given[name]):
            raise PlanError(f"given.{name}: is not cut into as many pieces as it can be")
    for name, cuts in rules.pinned.items():
        is_input = isinstance(graph[name].op, Input)
        home = given[name].home if is_input else decisions[name].home
        if not agrees(mesh, home, cuts):
            place = "given" if is_input else "vertices"
            raise PlanError(
                f"{place}.{name}: {graph[name]} does not lie where {_wanted(name, rules, pin)}"
            )
    for name in rules.gathered & given.keys():
        if given[name].second is not None:
            raise PlanError(f"given.{name}.further: must be null: the strategy gathers state anew")


def _wanted(name: str, rules: LayoutRules, pin: Pins) -> str:
    """Where a tensor must lie, and why."""
    if name in pin:
        return f"it is pinned, {pin[name]}"
    for tied, result in rules.tie.items():
        if result == name and tied in pin:
            return f"{tied!r}, which is tied to it, is pinned, {pin[tied]}"
    return "the strategy puts state"


def _is_sharded(graph: Graph, mesh: Mesh, vertex: Vertex, lies: Layouts) -> bool:
    """Whether an input is cut into the most pieces that its sizes allow."""
    pieces = prod(pieces_by(mesh, span.axes) for span in lies.home)
    return pieces == most_pieces(view_of(graph, vertex).sizes, mesh.sizes, even=mesh.cuts_evenly)

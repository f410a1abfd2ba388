"""Improves a plan region by region: a few vertices choose all their axes again, the rest is fixed.

A region surrounds one kind of vertex: all vertices that are cut alike, in every layer, and their
neighbours. So a better way to do one part of a layer is taken in all layers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.errors import UnsolvedError
from eindecomp.graph.ops import Input
from eindecomp.layout.view import is_planned, view_of
from eindecomp.planner.costs.cost import decided_cost
from eindecomp.planner.search.search import solve
from eindecomp.planner.space.reduce_scatter import Settled
from eindecomp.solve.clock import planning_time

if TYPE_CHECKING:
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.view import View
    from eindecomp.planner.search.search import Outcome, Search
    from eindecomp.planner.space.choices import Choices


def improve_regions(search: Search, outcome: Outcome, goal: float) -> Outcome:
    """Choose regions again, the costliest first, until none improves or time is up."""
    near = _neighbours(search)
    tried: set[frozenset[str]] = set()
    improved = True
    while improved and outcome.cost > goal:
        improved = False
        for kind in _kinds(search, outcome):
            region = frozenset(kind).union(*(near[name] for name in kind))
            if region in tried or planning_time() > search.deadline:
                continue
            tried.add(region)
            search.tell("regions", outcome.cost)
            other = _choose_region(search, outcome, region)
            if other is not None and other.cost < outcome.cost:
                outcome, improved = other, True
                tried = {region}
                break
    return outcome


def _neighbours(search: Search) -> dict[str, set[str]]:
    """For each planned vertex, those it reads and those that read it."""
    graph = search.graph
    near: dict[str, set[str]] = {v.name: set() for v in graph.vertices.values() if is_planned(v)}
    for reader in near:
        for name in graph[reader].inputs:
            if name in near:
                near[reader].add(name)
                near[name].add(reader)
    return near


def _kinds(search: Search, outcome: Outcome) -> list[list[str]]:
    """Groups of equal vertices that are cut alike, the costliest group first."""
    graph = search.graph
    computed = {n: d for n, d in outcome.decisions.items() if is_planned(graph[n])}
    costs = decided_cost(graph, search.price, computed, outcome.given)
    kinds: dict[object, list[str]] = {}
    for name, decision in computed.items():
        kinds.setdefault((view_of(graph, graph[name]), decision.assignment), []).append(name)
    return sorted(kinds.values(), key=lambda kind: -sum(costs.of(name) for name in kind))


def _choose_region(search: Search, outcome: Outcome, region: frozenset[str]) -> Outcome | None:
    """The best choice for a region's vertices and what they are given; None if it is too large."""
    inputs = {name for each in region for name in search.graph[each].inputs}
    inputs = {name for name in inputs if isinstance(search.graph[name].op, Input)}

    every = (1 << len(search.mesh.sizes)) - 1

    def of(vertex: Vertex, view: View) -> Choices:
        if vertex.name in region or vertex.name in inputs:
            return search.every_choice(vertex, view)
        decided = outcome.decisions[vertex.name]
        settled = Settled(decided.places, every)
        return search.choices(vertex, view, (decided.assignment,), settled)

    try:
        return solve(search, of)
    except UnsolvedError:
        return None

"""Which results may stay in parts, and which vertices may read them so.

A result that several devices share is there in parts until ⊕ combines them. It may stay *pending*
if every reader can read parts, and if that can pay: where a reader joins several results in parts,
or makes something smaller of one, fewer elements are left to combine. On axes along which a vertex
reads parts it is not cut, and each device computes with its own part: an element-wise vertex may
always do that, a contraction as often as the limit on work allows.

Which results can be in parts at all, and who can read them, `graph/parts.py` tells.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

from eindecomp.graph.graph import Graph
from eindecomp.graph.parts import Operands, Parts, parts_of
from eindecomp.graph.work import operations
from eindecomp.layout.mesh import Mesh, products_of
from eindecomp.layout.view import View, Way, planned_views
from eindecomp.planner.space.viable import most_pieces


class Waiting(NamedTuple):
    """How a vertex may read operands in parts, and whether its own result may stay so."""

    ways: tuple[Way, ...] = ()
    most: int = 1
    """Among how many devices at most it reads parts of the same operand."""
    stays: str = ""
    """The ⊕ of its result's parts, if that may stay pending."""

    def of(self, view: View) -> View:
        """The view of the vertex with its ways as labels that cut nothing."""
        return view.waiting(self.ways, self.most, self.stays)


def waiting_of(graph: Graph, kept: Collection[str], mesh: Mesh, work: float) -> dict[str, Waiting]:
    """For each vertex that may wait, or whose result may, how.

    Results that are `kept` as they are, outputs and pinned ones, never stay pending. All
    contractions together take at most `work` times their operations.
    """
    return _Analysis(graph, frozenset(kept), mesh, work).made()


class _Reader(NamedTuple):
    """A vertex that reads a tensor, and as which of its operands."""

    name: str
    operands: Operands


@dataclass(frozen=True)
class _Analysis:
    """The ⊕ of every vertex's parts, who reads whom, and what may stay pending."""

    graph: Graph
    kept: frozenset[str]
    mesh: Mesh
    work: float

    @cached_property
    def views(self) -> dict[str, View]:
        """The vertices that are computed, in order."""
        return dict(planned_views(self.graph))

    @cached_property
    def readers(self) -> dict[str, list[_Reader]]:
        """Who reads each tensor's elements."""
        readers: dict[str, list[_Reader]] = {name: [] for name in self.graph.vertices}
        for name, view in self.views.items():
            operands: dict[str, set[int]] = {}
            for k, source in enumerate(self.graph[name].inputs):
                if view.reads[k] is not None:
                    operands.setdefault(source, set()).add(k)
            for source, own in operands.items():
                readers[source].append(_Reader(name, frozenset(own)))
        return readers

    @cached_property
    def parts(self) -> dict[str, Parts]:
        """The parts in which results may be."""
        return parts_of(self.graph)

    @cached_property
    def most(self) -> dict[str, int]:
        """Among how many devices each contraction may read parts, small ones first."""
        costs = {name: operations(self.graph, self.graph[name]) for name in self.views}
        left = inf if self.work == inf else (self.work - 1) * sum(costs.values())
        most: dict[str, int] = {}
        readers = (name for name, own in self.parts.items() if own.sets and self._contracts(name))
        for name in sorted(readers, key=costs.__getitem__):
            most[name] = max(
                n for n in products_of(self.mesh.sizes) if costs[name] * (n - 1) <= left
            )
            left -= costs[name] * (most[name] - 1)
        return most

    def _contracts(self, name: str) -> bool:
        """Whether a vertex takes more operations than it reads elements."""
        return bool(self.views[name].aggregated) and len(self.graph[name].inputs) > 1

    @cached_property
    def ways(self) -> dict[str, tuple[Operands, ...]]:
        """The operands that each vertex can read in parts together, as far as work allows."""
        return {n: own.sets for n, own in self.parts.items() if own.sets and self._most(n) > 1}

    def _most(self, name: str) -> int:
        return self.most.get(name, self.mesh.devices)

    def _may_stay(self, name: str) -> bool:
        """Whether every reader of a result can read it in parts."""
        return (
            name not in self.kept
            and bool(self.readers[name])
            and all(
                self.parts[reader.name].read == self.parts[name].agg
                and any(reader.operands <= way for way in self.ways[reader.name])
                if reader.name in self.ways
                else False
                for reader in self.readers[name]
            )
        )

    @cached_property
    def staying(self) -> frozenset[str]:
        """The results that may stay pending where that can pay."""
        able = {name for name in self.parts if self._may_stay(name)}
        paying: set[str] = set()
        for name in reversed([*self.parts]):
            if name in able and any(
                self._pays(name, each, able, paying) for each in self.readers[name]
            ):
                paying.add(name)
        return frozenset(paying)

    def _pays(self, name: str, reader: _Reader, able: set[str], paying: set[str]) -> bool:
        """Whether a reader joins a result with others, makes it smaller, or passes it on so."""
        if reader.name in paying or any(map(self._has_idle_axes, (name, reader.name))):
            return True
        vertex = self.graph[reader.name]
        if vertex.elements < self.graph[name].elements:
            return True
        joined = (
            vertex.inputs[k]
            for way in self.ways[reader.name]
            if reader.operands <= way
            for k in way
        )
        return any(source in able and source != name for source in joined)

    def _has_idle_axes(self, name: str) -> bool:
        """Whether a vertex is too small for all devices: then waiting may take some of them."""
        sizes, mesh = self.views[name].cut_sizes, self.mesh
        return most_pieces(sizes, mesh.sizes, even=mesh.cuts_evenly) < mesh.devices

    def made(self) -> dict[str, Waiting]:
        """How each vertex may wait, where any may."""
        waiting: dict[str, Waiting] = {}
        for name, own in self.parts.items():
            inputs = self.graph[name].inputs
            ways = tuple(
                Way(tuple(sorted(operands)), own.read.name)
                for operands in self.ways.get(name, ())
                if own.read is not None and any(inputs[k] in self.staying for k in operands)
            )
            stays = own.agg.name if name in self.staying else ""
            if ways or stays:
                waiting[name] = Waiting(ways, self._most(name), stays)
        return waiting

"""Restrictions on how vertices are cut: given parts, limited work, small tiles.

`strategy.py` has those that name labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from eindecomp.graph.ops import Fill, Input
from eindecomp.graph.work import tile_operations
from eindecomp.layout.view import dim_parts, tile_sides
from eindecomp.planner import budgets
from eindecomp.planner.space.viable import some_parts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.view import Dims, View
    from eindecomp.planner.space.layout_rules import LayoutRules

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Restriction(Protocol):
    """Which partition vectors a vertex may take."""

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> Mask:
        """A mask over rows of parts; `mesh` may hold only the outer axes."""
        ...


@dataclass(frozen=True)
class FixedParts:
    """Cuts every vertex that a decomposition for `devices` devices names as it says."""

    parts: Mapping[str, tuple[int, ...]]
    devices: int

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> Mask:
        """On a mesh of only the outer axes, whatever inner axes can still turn into that."""
        del view
        if vertex.name not in self.parts:
            return np.ones(len(parts), dtype=bool)
        wanted = np.array(self.parts[vertex.name], dtype=np.int64)
        if mesh.devices == self.devices:
            return (parts == wanted).all(axis=1)
        return (wanted % parts == 0).all(axis=1)


@dataclass(frozen=True)
class WorkLimit:
    """Cuts vertices only so that all their tiles together take at most so many operations.

    A fused contraction works pair by pair inside a tile; cutting a label that a pair lacks makes
    several tiles compute the same.
    """

    most: Mapping[str, float]
    """The most operations of each vertex that is limited."""

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> NDArray[np.bool_]:
        """On a mesh of only the outer axes, a lower bound: cutting further repeats no less."""
        del mesh
        if vertex.name not in self.most:
            return np.ones(len(parts), dtype=bool)
        tile = {
            label: size / parts[:, k].astype(np.float64)
            for k, (label, size) in enumerate(zip(view.labels, view.sizes, strict=True))
        }
        operations = parts.astype(np.float64).prod(axis=1) * tile_operations(vertex.op, tile)
        return operations <= self.most[vertex.name] * (1 + budgets.SUM_ROUNDING)


@dataclass(frozen=True)
class SmallTiles:
    """Cuts every vertex such that its tiles take no more bytes together, or the fewest it can."""

    nbytes: int
    devices: int
    items: Mapping[str, int]
    """The bytes of an element of each tensor that is not generated where it is read."""

    @staticmethod
    def of(graph: Graph, devices: int, nbytes: int) -> SmallTiles:
        """The strategy for a graph."""
        vertices = graph.vertices.values()
        items = {v.name: v.dtype.itemsize for v in vertices if not isinstance(v.op, Fill)}
        return SmallTiles(nbytes, devices, items)

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> Mask:
        """On a mesh of only the outer axes, anything: inner ones can still cut it."""
        if mesh.devices < self.devices or isinstance(vertex.op, Input) or not len(parts):
            return np.ones(len(parts), dtype=bool)
        # The fewest of all, however few of the vectors are asked about.
        known = some_parts(view.sizes, mesh.sizes, budgets.SMALLEST_VECTORS, even=mesh.cuts_evenly)
        fewest = self._taken(vertex, view, known).min(initial=2**62)
        return self._taken(vertex, view, parts) <= max(self.nbytes, int(fewest))

    def _taken(self, vertex: Vertex, view: View, parts: Ints) -> Ints:
        """The bytes of the largest tiles together, for each partition vector."""
        taken = self.items.get(vertex.name, 0) * _elements(view, view.output, parts)
        for name, dims in zip(vertex.inputs, view.reads, strict=True):
            if dims is not None:
                taken = taken + self.items.get(name, 0) * _elements(view, dims, parts)
        return taken

    def rules(self, graph: Graph, mesh: Mesh, rules: LayoutRules) -> LayoutRules:
        """The same: it says nothing about state."""
        del graph, mesh
        return rules


def _elements(view: View, dims: Dims, parts: Ints) -> Ints:
    """The elements of the largest tile, for each partition vector."""
    return tile_sides(dims, dim_parts(view, dims, parts)).prod(axis=1)

"""The strategy that keeps what one kernel reads and writes within some bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.graph.ops import Fill, Input
from eindecomp.planner.space.tiles import dim_parts, tile_sides
from eindecomp.planner.space.viable import some_parts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.view import Dims, View
    from eindecomp.planner.space.layout_rules import LayoutRules
    from eindecomp.planner.space.restriction import Ints, Mask

_MOST = 4096  # vectors that are looked at


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
        known = some_parts(view.sizes, mesh.sizes, _MOST, even=mesh.cuts_evenly)
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

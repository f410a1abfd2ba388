"""Restrictions on how vertices are cut: what a search is told of a strategy or a decomposition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.view import View

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

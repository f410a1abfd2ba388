"""How many operations fused contractions may take when tiles repeat some of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.graph.work import tile_operations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.view import View

    Ints = NDArray[np.int64]

_ROUNDING = 1e-9


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
        return operations <= self.most[vertex.name] * (1 + _ROUNDING)

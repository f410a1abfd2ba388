"""Objective "bytes": what really moves, counted from cuts.

A reduce-scatter is counted in `space/reduce_scatter.py`, overlaps of cuts in `space/overlaps.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.layout.overlaps import covers, moved
from eindecomp.planner.costs.infinite import infinite_where
from eindecomp.planner.costs.price import held_elements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.cut import Cut
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.space.choices import Choices

    Costs = NDArray[Any]


@dataclass(frozen=True)
class PriceInBytes:
    """The bytes that devices receive; computing is free."""

    mesh: Mesh

    def on(self, mesh: Mesh) -> PriceInBytes:
        """The same prices on another mesh."""
        return PriceInBytes(mesh)

    def fetch(self, held: Sequence[Cut], needed: Sequence[Cut], item: int) -> Costs:
        """What each device needs, less what it holds."""
        return infinite_where(~covers(held, needed), item * moved(self.mesh, held, needed))

    def reduce_scatter(self, choices: Choices, elements: int, partial: int, item: int) -> Costs:
        """The elements of partial results, then those of results, as often as they move."""
        moved = partial * elements * choices.reduced + item * elements * choices.gathered
        return infinite_where(choices.reduced < 0, moved)

    def compute(self, vertex: Vertex, choices: Choices, items: tuple[int, ...]) -> Costs:
        """Nothing."""
        del vertex, items
        return np.zeros(len(choices.assignments), dtype=np.int64)

    def held(self, cuts: Sequence[Cut], item: int) -> Costs:
        """As many of the largest piece as there are devices."""
        return item * held_elements(self.mesh, cuts)

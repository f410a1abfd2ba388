"""`Price`: what an objective charges for each thing that a plan does."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from eindecomp.planner.space.cut import Cut, largest_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.space.choices import Choices
    from eindecomp.planner.space.mesh import Mesh

    Costs = NDArray[Any]


class Price(Protocol):
    """An objective: the price of everything that a plan does."""

    @property
    def mesh(self) -> Mesh:
        """The mesh that things move on."""
        ...

    def on(self, mesh: Mesh) -> Price:
        """The same prices on another mesh."""
        ...

    def fetch(self, held: Sequence[Cut], needed: Sequence[Cut], item: int) -> Costs:
        """From each held cut to each needed one; ∞ where what is needed is not held."""
        ...

    def reduce_scatter(self, choices: Choices, elements: int, partial: int, item: int) -> Costs:
        """From each assignment's partial results to each home; ∞ where it cannot be reached.

        `partial` is the item size of partial results, `item` that of results.
        """
        ...

    def compute(self, vertex: Vertex, choices: Choices, items: tuple[int, ...]) -> Costs:
        """The kernel calls of each assignment; `items` are the inputs' item sizes."""
        ...

    def held(self, cuts: Sequence[Cut], item: int) -> Costs:
        """The bytes of each cut on all devices, as if each had the largest piece."""
        ...


def held_elements(mesh: Mesh, cuts: Sequence[Cut]) -> Costs:
    """The elements of each cut on all devices, as if each had the largest piece."""
    tiles = [prod(largest_side(mesh, span) for span in cut) for cut in cuts]
    return mesh.devices * np.array(tiles, dtype=np.int64)

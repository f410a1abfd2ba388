"""`Price`: what an objective charges for each thing that a plan does."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from eindecomp.layout.cut import Cut, largest_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.space.choices import Choices

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


@runtime_checkable
class Overlapping(Protocol):
    """What an objective also has where communication can run beside computing."""

    def hides(
        self, vertex: Vertex, choices: Choices, items: tuple[int, ...], fetches: int
    ) -> Costs | None:
        """What each fetch, and the reduction, costs less under each assignment; None for nothing.

        `fetches` is the number of inputs that are fetched.
        """
        ...


def hidden(
    price: object, vertex: Vertex, choices: Choices, items: tuple[int, ...], fetches: int
) -> Costs | None:
    """The same for any prices; nothing is hidden where they do not say so."""
    is_able = isinstance(price, Overlapping)
    return price.hides(vertex, choices, items, fetches) if is_able else None


def beyond(costs: Any, hides: Any | None) -> Any:
    """What costs are beyond what is hidden of them."""
    return costs if hides is None else np.maximum(costs - hides, 0.0)


def held_elements(mesh: Mesh, cuts: Sequence[Cut]) -> Costs:
    """The elements of each cut on all devices, as if each had the largest piece."""
    tiles = [prod(largest_side(mesh, span) for span in cut) for cut in cuts]
    return mesh.devices * np.array(tiles, dtype=np.int64)

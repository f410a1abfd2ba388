"""`Price`: what an objective charges for what a plan does; `PriceInBytes`, the simplest."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from eindecomp.layout.cut import Cut, largest_side
from eindecomp.layout.overlaps import covers, moved
from eindecomp.solve import INFINITE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.cut import Cut
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


def infinite_where(mask: NDArray[np.bool_], costs: Costs) -> Costs:
    """The costs with ∞ where the mask holds."""
    infinite = INFINITE if costs.dtype.kind == "i" else np.inf
    return np.where(mask, costs.dtype.type(infinite), costs)


def is_infinite(costs: Costs) -> NDArray[np.bool_]:
    """Where costs are ∞."""
    return costs >= (INFINITE if costs.dtype.kind == "i" else np.inf)


def multiplied(costs: Any, times: int) -> Any:
    """Several times the costs; what is infinite stays so."""
    return costs if times == 1 else infinite_where(is_infinite(costs), costs * times)


def added(one: Any, other: Any) -> Any:
    """The sum of costs; what is infinite stays so."""
    return infinite_where(is_infinite(one) | is_infinite(other), one + other)


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

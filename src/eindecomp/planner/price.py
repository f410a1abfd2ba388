"""What a movement costs: the prices that the model of real movement is built from."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from eindecomp.planner.box import Cut, covers, largest_side, moved, parts_of, totals, used_axes
from eindecomp.planner.network import infinite_where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.choices import Choices
    from eindecomp.planner.mesh import Mesh

    Costs = NDArray[Any]


class Price(Protocol):
    """An objective, as prices of what a plan does."""

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

    def scatter(self, choices: Choices, elements: int, partial: int, item: int) -> Costs:
        """From each assignment's partial results to each home; ∞ where there is no way.

        `partial` is the item size of partial results, `item` that of results.
        """
        ...

    def gather_input(self, needed: Sequence[Cut], item: int) -> Costs:
        """To each needed cut of an input that is stored once over all devices."""
        ...

    def compute(self, vertex: Vertex, choices: Choices, items: tuple[int, ...]) -> Costs:
        """Of the kernel calls of each assignment; `items` are the inputs' item sizes."""
        ...

    def held(self, cuts: Sequence[Cut], item: int) -> Costs:
        """The bytes of each cut on all devices, if all had the largest piece."""
        ...


@dataclass(frozen=True)
class BytesMoved:
    """Bytes that devices receive; computing is free."""

    mesh: Mesh

    def on(self, mesh: Mesh) -> BytesMoved:
        """The same prices on another mesh."""
        return BytesMoved(mesh)

    def fetch(self, held: Sequence[Cut], needed: Sequence[Cut], item: int) -> Costs:
        """What a device needs less what it holds."""
        return infinite_where(~covers(held, needed), item * moved(self.mesh, held, needed))

    def scatter(self, choices: Choices, elements: int, partial: int, item: int) -> Costs:
        """As often as the elements move."""
        moved = partial * elements * choices.reduced + item * elements * choices.gathered
        return infinite_where(choices.reduced < 0, moved)

    def gather_input(self, needed: Sequence[Cut], item: int) -> Costs:
        """What all devices need, less each piece once."""
        total = totals(self.mesh, needed)
        pieces = np.array([parts_of(self.mesh, used_axes(cut)) for cut in needed], dtype=np.int64)
        return item * (total - total * pieces // self.mesh.devices)

    def compute(self, vertex: Vertex, choices: Choices, items: tuple[int, ...]) -> Costs:
        """Nothing."""
        del vertex, items
        return np.zeros(len(choices.assignments), dtype=np.int64)

    def held(self, cuts: Sequence[Cut], item: int) -> Costs:
        """As many of the largest piece as there are devices."""
        return item * held_elements(self.mesh, cuts)


def held_elements(mesh: Mesh, cuts: Sequence[Cut]) -> Costs:
    """The elements of each cut on all devices, if all had the largest piece."""
    tiles = [prod(largest_side(mesh, span) for span in cut) for cut in cuts]
    return mesh.devices * np.array(tiles, dtype=np.int64)

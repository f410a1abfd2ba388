"""The fewest bytes that a movement can take, by numbers of pieces alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eindecomp.planner.costs.price import infinite_where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.space.choices import Choices

    Ints = NDArray[np.int64]


class PieceCount(NamedTuple):
    """A dimension cut into a number of pieces, whichever axes cut it."""

    parts: int
    units: int
    scale: int
    stop: int
    label: str | None
    levels: tuple[int, ...] = ()
    """The pieces that the axes of each level of the mesh cut it into."""


PieceCounts = tuple[PieceCount, ...]


@dataclass(frozen=True)
class LeastBytes:
    """The fewest bytes that a movement can take, whichever axes cut which labels."""

    mesh: Mesh

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """All axes are one level."""
        return (self.mesh.sizes,)

    def on(self, mesh: Mesh) -> LeastBytes:
        """The same prices on another mesh."""
        return LeastBytes(mesh)

    def fetch(self, held: Sequence[PieceCounts], needed: Sequence[PieceCounts], item: int) -> Any:
        """Each device keeps at most the smaller tile side of each dimension."""
        total = self.needed(needed)
        shared = np.full((len(held), len(needed)), self.mesh.devices, dtype=np.float64)
        for own, other in zip(zip(*held, strict=True), zip(*needed, strict=True), strict=True):
            shared *= np.minimum(_tiles(own)[:, None], _tiles(other)[None])
        return item * np.maximum(total[None] - shared, 0).astype(np.int64)

    def reduce_scatter(self, choices: Choices, elements: int, partial: int, item: int) -> Any:
        """The same whichever axes are chosen."""
        moved = partial * elements * choices.reduced + item * elements * choices.gathered
        return infinite_where(choices.reduced < 0, moved)

    def compute(self, vertex: Vertex, choices: Choices, items: tuple[int, ...]) -> Any:
        """Computing is free."""
        del vertex, items
        return np.zeros(len(choices.assignments), dtype=np.int64)

    def held(self, cuts: Sequence[PieceCounts], item: int) -> Any:
        """The same whichever axes are chosen."""
        tiles = [prod(_tile(side) for side in sides) for sides in cuts]
        return item * self.mesh.devices * np.array(tiles, dtype=np.int64)

    def needed(self, needed: Sequence[PieceCounts]) -> Ints:
        """The fewest elements that all devices can need; for a diagonal, none."""
        elements: list[int] = []
        for sides in needed:
            labels = [side.label for side in sides if side.label is not None]
            whole = prod(side.stop for side in sides)
            pieces = prod(side.parts for side in sides)
            is_diagonal = len(set(labels)) < len(labels)
            elements.append(0 if is_diagonal else whole * self.mesh.devices // pieces)
        return np.array(elements, dtype=np.int64)


def _tiles(sides: Sequence[PieceCount]) -> NDArray[np.float64]:
    return np.array([_tile(side) for side in sides], dtype=np.float64)


def _tile(side: PieceCount) -> int:
    return -(-side.units // side.parts) * side.scale

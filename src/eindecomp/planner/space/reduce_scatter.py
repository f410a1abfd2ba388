"""The ways to leave a result that several devices have summed, and what each of them moves.

Devices that sum over the same label hold partial results. A reduce-scatter combines them and leaves
each of those devices a part of the result, its *home* there: every summed axis either cuts a
dimension of the result or, after an all-gather, replicates it.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from eindecomp.planner.space.cut import Cut, Span, parts_of, span_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.planner.space.view import View

REPLICATED = -1
Places = tuple[int, ...]
"""For each axis that is summed over, the dimension of the result it cuts, or REPLICATED; else 0."""


class ReduceScatter(NamedTuple):
    """How a home is reached: `summed` devices combine a piece, `copies` of them end up with it."""

    groups: int
    """How many devices compute the same partial result."""
    summed: int
    copies: int
    places: Places

    @property
    def reduced(self) -> int:
        """How many times the partial result's elements move in all: the reduce-scatter."""
        return self.groups * (self.summed - 1)

    @property
    def gathered(self) -> int:
        """How many times the result's elements move in all afterwards: the all-gather."""
        return self.groups * (self.copies - 1)


def homes_of(
    view: View, mesh: Mesh, axes_of: tuple[int, ...], fixed: dict[int, int]
) -> Iterator[tuple[Cut, ReduceScatter]]:
    """The homes of one assignment and the ways there.

    `axes_of` has for each label the axes that cut it, as bits; `fixed` the places of some axes.
    """
    tile = [0 if (i := view.index(dim)) is None else axes_of[i] for dim in view.output]
    summed = sum(axes_of[i] for i in view.aggregated)
    groups = mesh.devices // parts_of(mesh, sum(axes_of))
    axes = [a for a in range(len(mesh.sizes)) if summed >> a & 1]
    options = [(fixed[axis],) if axis in fixed else range(REPLICATED, len(tile)) for axis in axes]
    for places in product(*options):
        inner = [0] * len(tile)
        copies = 1
        placed = [0] * len(mesh.sizes)
        for axis, place in zip(axes, places, strict=True):
            placed[axis] = place
            if place == REPLICATED:
                copies *= mesh.sizes[axis]
            else:
                inner[place] |= 1 << axis
        home = tuple(map(span_of, view.output, tile, inner))
        if all(_fits(mesh, span) for span in home):
            yield home, ReduceScatter(groups, parts_of(mesh, summed), copies, tuple(placed))


def _fits(mesh: Mesh, span: Span) -> bool:
    axes = span.axes | span.inner
    return axes == 0 or parts_of(mesh, axes) <= span.units

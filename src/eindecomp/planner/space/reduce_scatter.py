"""The ways to leave a result that several devices have summed, and what each of them moves.

Devices that sum over the same label hold partial results. A reduce-scatter combines them and leaves
each of those devices a part of the result, its *home* there: every summed axis either cuts a
dimension of the result, inside the tile, or, after an all-gather, replicates it.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from eindecomp.layout.cut import (
    Axes,
    Cut,
    Span,
    bits_of,
    in_mesh_order,
    interleaved,
    parts_of,
    pieces_by,
    span_of,
)
from eindecomp.layout.pieces import can_cut

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.view import View

Places = tuple[Axes, ...]
"""For each dimension of the result the summed axes that cut it further, outermost first.

A summed axis that is in none of them replicates the result.
"""
_REPLICATED = -1


class Settled(NamedTuple):
    """Where some of the summed axes go, as was decided before; all others may go anywhere."""

    places: Places
    axes: int
    """Which axes are settled, as bits."""


class WayHome(NamedTuple):
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
    view: View,
    mesh: Mesh,
    assignment: tuple[Axes, ...],
    settled: Settled | None = None,
    *,
    any_order: bool = False,
) -> list[tuple[Cut, WayHome]]:
    """The homes of one assignment and the ways there.

    Where the places that are settled for some axes leave no room for what others now cut, those
    axes replicate the result.
    """
    reached = list(_homes_of(view, mesh, assignment, settled, any_order=any_order))
    if not reached and settled is not None:
        replicated = Settled(((),) * len(view.output), settled.axes)
        reached = list(_homes_of(view, mesh, assignment, replicated, any_order=any_order))
    return reached


def _homes_of(
    view: View,
    mesh: Mesh,
    assignment: tuple[Axes, ...],
    settled: Settled | None,
    *,
    any_order: bool,
) -> Iterator[tuple[Cut, WayHome]]:
    tile = [() if (i := view.index(dim)) is None else assignment[i] for dim in view.output]
    summed = tuple(sorted(axis for i in view.aggregated for axis in assignment[i]))
    groups = mesh.devices // pieces_by(mesh, tuple(axis for own in assignment for axis in own))
    for places in _places(summed, len(tile), settled, any_order=any_order):
        home = tuple(
            span_of(dim, (*own, *inner))
            for dim, own, inner in zip(view.output, tile, places, strict=True)
        )
        if all(_fits(mesh, span) for span in home):
            scattered = sum(bits_of(inner) for inner in places)
            ways = pieces_by(mesh, summed)
            yield home, WayHome(groups, ways, ways // parts_of(mesh, scattered), places)


def _places(
    summed: Axes, dimensions: int, settled: Settled | None, *, any_order: bool
) -> Iterator[Places]:
    """Every way to place the summed axes on dimensions of the result."""
    fixed = 0 if settled is None else settled.axes
    before: Places = ((),) * dimensions if settled is None else settled.places
    kept = tuple(tuple(a for a in own if fixed >> a & 1 and a in summed) for own in before)
    free = tuple(axis for axis in summed if not fixed >> axis & 1)
    for row in product(range(_REPLICATED, dimensions), repeat=len(free)):
        added = [
            tuple(axis for axis, place in zip(free, row, strict=True) if place == d)
            for d in range(dimensions)
        ]
        pairs = zip(kept, added, strict=True)
        if not any_order:
            yield tuple(in_mesh_order(own, more) for own, more in pairs)
        else:
            yield from product(*(interleaved(own, more) for own, more in pairs))


def _fits(mesh: Mesh, span: Span) -> bool:
    return not span.axes or can_cut(mesh.pieces, span.units, pieces_by(mesh, span.axes))

"""Homes: where a reduction can leave the result of one assignment, and what moves on the way there.

Each axis along which the result is in parts cuts a dimension of it further, replicates it or, where
that is allowed, leaves it pending.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from eindecomp.layout.cut import (
    Axes,
    Cut,
    in_mesh_order,
    interleaved,
    pending_span,
    pieces_by,
    span_of,
)
from eindecomp.layout.mesh import Mesh, can_cut
from eindecomp.layout.view import View

Places = tuple[Axes, ...]
"""For each dimension of the result the summed axes that cut it further, outermost first.

Where the result may stay pending, one more entry has the axes along which it does. A summed axis
that is in none of them replicates the result.
"""
_REPLICATED = -1


class Settled(NamedTuple):
    """Where some of the summed axes go, as was decided before; all others may go anywhere."""

    places: Places
    axes: int
    """Which axes are settled, as bits."""


class WayHome(NamedTuple):
    """How a home is reached, and how often elements move on the way, all devices together."""

    reduced: int
    """How many times the partial result's elements move: the reduce-scatter."""
    gathered: int
    """How many times the result's elements move afterwards: the all-gather."""
    places: Places


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
        replicated = Settled((), settled.axes)
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
    whole = [d for d, dim in enumerate(view.output) if view.turn and dim.label == view.turn]
    summed = tuple(sorted(axis for i in view.aggregated for axis in assignment[i]))
    groups = mesh.devices // pieces_by(mesh, tuple(axis for own in assignment for axis in own))
    for places in _places(summed, len(tile), settled, any_order=any_order, stays=bool(view.stays)):
        if any(places[d] for d in whole):
            continue
        home = tuple(
            span_of(dim, (*own, *inner))
            for dim, own, inner in zip(view.output, tile, places, strict=False)
        )
        sizes = ((span.units, pieces_by(mesh, span.axes)) for span in home)
        if not all(pieces == 1 or can_cut(mesh.pieces, units, pieces) for units, pieces in sizes):
            continue
        pending = places[len(tile)] if view.stays else ()
        if pending:
            home = (*home, pending_span(mesh, pending, view.stays))
        left = pieces_by(mesh, pending)  # of these, each is reduced by itself
        ways = pieces_by(mesh, summed) // left
        copies = ways // pieces_by(mesh, tuple(a for own in places[: len(tile)] for a in own))
        yield home, WayHome(groups * left * (ways - 1), groups * left * (copies - 1), places)


def _places(
    summed: Axes, dimensions: int, settled: Settled | None, *, any_order: bool, stays: bool
) -> Iterator[Places]:
    """Every way to place the summed axes on dimensions of the result, or to leave it pending."""
    dimensions += stays
    fixed = 0 if settled is None else settled.axes
    before: Places = () if settled is None else settled.places
    before = (*before, *[()] * dimensions)[:dimensions]
    kept = tuple(tuple(a for a in own if fixed >> a & 1 and a in summed) for own in before)
    free = tuple(axis for axis in summed if not fixed >> axis & 1)
    for row in product(range(_REPLICATED, dimensions), repeat=len(free)):
        added = [
            tuple(axis for axis, place in zip(free, row, strict=True) if place == d)
            for d in range(dimensions)
        ]
        pairs = zip(kept, added, strict=True)
        in_order = tuple(in_mesh_order(own, more) for own, more in pairs)
        if not any_order:
            yield in_order
            continue
        last = dimensions - stays  # what is pending has no order
        ways = (interleaved(own, more) for own, more in zip(kept[:last], added, strict=False))
        yield from ((*row, *in_order[last:]) for row in product(*ways))

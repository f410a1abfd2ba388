"""Layouts that follow others: axes for given pieces that begin like those of a neighbour.

Little moves where what a device needs begins like what it holds: the axes of a dimension are the
outer ones of those that cut it before, or those and more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod

from eindecomp.layout.cut import Axes, pieces_by
from eindecomp.layout.mesh import Mesh, can_cut
from eindecomp.layout.view import View
from eindecomp.planner.space.choices import Assignment
from eindecomp.planner.space.homes import Places
from eindecomp.planner.space.pieces import Levels, Vector, pieces_of
from eindecomp.planner.space.viable import most_pieces

Wanted = tuple[tuple[int, Axes], ...]
"""Labels or dimensions by number and the axes that should cut them, the first chooses first."""


@lru_cache(maxsize=1 << 14)
def axes_for(
    mesh: Mesh, levels: Levels, pieces: Vector, wanted: Wanted, free: Axes | None = None
) -> tuple[Axes, ...] | None:
    """Axes that cut into these pieces on each level, beginning as wanted; None if there are none.

    Of axes that nobody wants any more, those that nobody wanted come first.
    """
    level_of = [level for level, sizes in enumerate(levels) for _ in sizes]
    spare = dict.fromkeys(range(len(mesh.sizes)) if free is None else free)
    left = [list(each) for each in pieces]
    own: list[list[int]] = [[] for _ in pieces]

    def give(axis: int, one: int) -> bool:
        size, level = mesh.sizes[axis], level_of[axis]
        if axis not in spare or left[one][level] % size:
            return False
        left[one][level] //= size
        own[one].append(axis)
        del spare[axis]
        return True

    for one, axes in wanted:
        for axis in axes:
            if not give(axis, one):
                break
    popular = {axis for _, axes in wanted for axis in axes}
    for one in dict.fromkeys((*(one for one, _ in wanted), *range(len(left)))):
        for axis in sorted(spare, key=lambda axis: (axis in popular, axis)):
            give(axis, one)
    if any(n != 1 for each in left for n in each):
        return None
    return tuple(map(tuple, own))


@lru_cache(maxsize=1 << 14)
def places_for(
    view: View, mesh: Mesh, levels: Levels, own: Assignment, home: Vector, wanted: Wanted
) -> Places | None:
    """Where summed axes go so that the result lies in these pieces, as wanted; None if nowhere."""
    tile = _tile(view, own)
    home = (*home, *[(1,) * len(levels)] * (len(tile) - len(home)))  # nothing is left in parts
    left: list[tuple[int, ...]] = []
    for pieces, before in zip(home, pieces_of(mesh, levels, tile), strict=True):
        if any(n % m for n, m in zip(pieces, before, strict=True)):
            return None
        left.append(tuple(n // m for n, m in zip(pieces, before, strict=True)))
    return axes_for(mesh, levels, tuple(left), _inside(tile, wanted), _summed(view, own))


def taken_over(
    view: View, mesh: Mesh, wanted: Wanted, *, redundant: bool = False
) -> Iterator[Assignment]:
    """Labels cut just as wanted, and then by all other axes: each time another one first."""
    own: list[Axes] = [()] * len(view.labels)
    for label, axes in wanted:
        # What windows reach into may be cut into more pieces than their labels have numbers.
        fits = can_cut(mesh.pieces, view.sizes[label], pieces_by(mesh, axes))
        if fits and all(axis not in other for axis in axes for other in own):
            own[label] = axes
    rest = [a for a in range(len(mesh.sizes)) if all(a not in axes for axes in own)]
    for first in range(len(own)) if rest else range(min(len(own), 1)):
        row = list(own)
        for axis in rest:
            for label in (first, *range(len(own))):
                if can_cut(mesh.pieces, view.sizes[label], pieces_by(mesh, (*row[label], axis))):
                    row[label] = (*row[label], axis)
                    break
        if redundant or uses_all(view, mesh, row):
            yield tuple(row)


def uses_all(view: View, mesh: Mesh, own: Sequence[Axes]) -> bool:
    """Whether labels are cut by as many of the axes as fit, those of ways left out."""
    cut, ways = own[: len(view.cut_labels)], own[len(view.cut_labels) :]
    waiting = {axis for axes in ways for axis in axes}
    left = tuple(size for axis, size in enumerate(mesh.sizes) if axis not in waiting)
    if waiting and pieces_by(mesh, tuple(waiting)) > max(view.way_sizes):
        return False
    most = most_pieces(view.cut_sizes, left, even=mesh.cuts_evenly)
    return prod(pieces_by(mesh, axes) for axes in cut) == most


def left_over(view: View, own: Assignment, wanted: Wanted) -> Iterator[Places]:
    """Summed axes placed as wanted, and all others on one dimension, or on none."""
    tile, summed = _tile(view, own), _summed(view, own)
    got: list[Axes] = [()] * len(tile)
    for d, axes in _inside(tile, wanted):
        end = next((k for k, axis in enumerate(axes) if axis not in summed), len(axes))
        got[d] = axes[:end]
        summed = tuple(axis for axis in summed if axis not in got[d])
    for d in range(-1, len(tile)) if summed else (-1,):
        yield tuple((*axes, *summed) if i == d else axes for i, axes in enumerate(got))


def _tile(view: View, own: Assignment) -> list[Axes]:
    """The axes that cut each dimension of what is computed and, if it may stay pending, none."""
    tile = [() if (i := view.index(dim)) is None else own[i] for dim in view.output]
    return [*tile, ()] if view.stays else tile


def _summed(view: View, own: Assignment) -> Axes:
    return tuple(axis for i in view.aggregated for axis in own[i])


def _inside(tile: Sequence[Axes], wanted: Wanted) -> Wanted:
    """What is wanted inside the tile, for dimensions that begin with it."""
    return tuple((d, axes[len(tile[d]) :]) for d, axes in wanted if axes[: len(tile[d])] == tile[d])

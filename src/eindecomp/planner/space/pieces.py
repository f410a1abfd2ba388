"""Numbers of pieces in place of mesh axes: what a vertex can choose if only those count.

Pieces are counted on each level of the mesh: a row of `level_vectors` gives, for each label and
each level, into how many pieces the axes of that level cut the label. Where all axes are alike, the
whole mesh is one level.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, combinations_with_replacement, pairwise, product
from math import comb, prod
from typing import Any, NamedTuple

import numpy as np

from eindecomp.errors import PlanError
from eindecomp.layout.cut import Axes
from eindecomp.layout.mesh import BALANCED, Mesh, can_cut, products_of
from eindecomp.layout.view import Dim, Dims, View, dim_parts, least_units
from eindecomp.planner import budgets
from eindecomp.planner.space.choices import Choices, Reads
from eindecomp.planner.space.viable import viable_parts
from eindecomp.solve.problem.arrays import Ints

Levels = tuple[tuple[int, ...], ...]
"""The sizes of the axes of each level, outermost first."""
Vector = tuple[tuple[int, ...], ...]
"""For each label, into how many pieces the axes of each level cut it."""


class Pieces(NamedTuple):
    """Into how many pieces a vertex is cut, and where its result is left."""

    own: Vector
    home: Vector
    """For each dimension of the result and, where it may stay pending, in how many parts."""


class PieceCount(NamedTuple):
    """A dimension cut into a number of pieces, whichever axes cut it."""

    parts: int
    units: int
    scale: int
    stop: int
    label: str | None
    levels: tuple[int, ...] = ()
    """The pieces that the axes of each level of the mesh cut it into."""
    pending: str = ""
    """Of a last one that is of no dimension: the ⊕ that combines so many parts of the tensor."""


PieceCounts = tuple[PieceCount, ...]


@lru_cache(maxsize=1 << 10)
def level_vectors(
    sizes: tuple[int, ...],
    levels: Levels,
    alike: tuple[tuple[int, ...], ...],
    most: int,
    rule: str = BALANCED,
) -> Ints:
    """Every way to cut labels by axes of each level, any of which may stay unused.

    Rows × labels × levels. Of ways that differ only in how they treat labels that are `alike`, one
    is kept. Raises `PlanError` if there would be more than `most`.
    """
    rows = np.ones((1, len(sizes), 0), dtype=np.int64)
    for axes in levels:
        if comb(len(axes) + len(sizes), len(sizes)) > most:
            raise PlanError(f"{len(sizes)} labels can be cut in more than {most} ways")
        own = _spread(sizes, axes)
        if len(rows) * len(own) > 4 * most:
            raise PlanError(f"{len(sizes)} labels can be cut in more than {most} ways")
        rows = np.concatenate(
            [np.repeat(rows, len(own), axis=0), np.tile(own, (len(rows), 1))[:, :, None]], axis=2
        )
        fits = can_cut(rule, np.array(sizes, dtype=np.int64), rows.prod(axis=2))
        rows = rows[fits.all(axis=1)]
    keep = np.ones(len(rows), dtype=bool)
    for one, other in (pair for group in alike for pair in pairwise(group)):
        ranks = np.array([1 << 20 * k for k in range(len(levels))][::-1], dtype=np.float64)
        keep &= rows[:, one] @ ranks >= rows[:, other] @ ranks
    if keep.sum() > most:
        raise PlanError(f"{len(sizes)} labels can be cut in more than {most} ways")
    return rows[keep]


def _spread(sizes: tuple[int, ...], axes: tuple[int, ...]) -> Ints:
    """The numbers of pieces of all labels that axes of one size can make."""
    labels = range(len(sizes) + 1)  # the last one stands for axes that are not used
    rows: list[list[int]] = []
    for chosen in combinations_with_replacement(labels, len(axes)):
        parts = [1] * (len(sizes) + 1)
        for label, size in zip(chosen, axes, strict=True):
            parts[label] *= size
        rows.append(parts[:-1])
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(sizes))


@lru_cache(maxsize=1 << 8)
def piece_choices(view: View, mesh: Mesh, levels: Levels, rows: tuple[Vector, ...]) -> Choices:
    """A vertex's choices with vectors in place of assignments, homes and needed cuts."""
    vectors = np.array(rows, dtype=np.int64).reshape(len(rows), len(view.labels), len(levels))
    parts = vectors.prod(axis=2)
    reads = tuple(
        None if dims is None else _reads(view, k, vectors) for k, dims in enumerate(view.reads)
    )
    tile = dim_parts(view, view.output, vectors)
    summed = vectors[:, list(view.aggregated)].prod(axis=1)
    copies = mesh.devices // parts.prod(axis=1)
    homes = _homes(view, mesh, levels, tile, bool((summed > 1).any()))
    if view.stays:  # one more column: the parts that it is left in
        left = np.array(list(product(*map(products_of, levels))), dtype=np.int64)
        left = left[(summed[:, None] % left == 0).all(axis=2).any(axis=0)]
        both = np.repeat(homes, len(left), axis=0), np.tile(left[:, None], (len(homes), 1, 1))
        homes = np.concatenate(both, axis=1)
        whole = np.ones((len(tile), 1, *tile.shape[2:]), dtype=np.int64)
        tile = np.concatenate([tile, whole], axis=1)
    if len(homes) * len(vectors) > budgets.PIECES_AND_HOMES:
        raise PlanError(f"{len(vectors)} ways to cut a vertex, {len(homes)} to leave its result")
    spread = np.ones((len(vectors), len(homes), len(levels)), dtype=np.int64)
    fits = np.ones(spread.shape[:2], dtype=bool)
    for d in range(tile.shape[1]):
        grown, left = np.divmod(homes[None, :, d], tile[:, None, d])
        spread *= grown
        fits &= (left == 0).all(axis=2)
    spread_or_one = np.maximum(spread, 1)
    fits &= ((spread > 0) & (summed[:, None] % spread_or_one == 0)).all(axis=2)
    replicated = (summed[:, None] // spread_or_one).prod(axis=2)
    parts_left = homes[:, -1].prod(axis=1) if view.stays else np.ones(len(homes), dtype=np.int64)
    times = np.maximum(summed.prod(axis=1)[:, None] // parts_left, 1) - 1
    reduced = np.where(fits, copies[:, None] * parts_left * times, -1)
    gathered = np.where(fits, copies[:, None] * parts_left * (replicated - 1), -1)
    kept = fits.any(axis=0)
    cuts = tuple(_cut(view.output, row, view.stays) for row in homes[kept].tolist())
    # Numbers of pieces stand in for assignments and cuts; `LeastBytes` takes them.
    make: Any = Choices
    return make(view, mesh, rows, parts, reads, cuts, reduced[:, kept], gathered[:, kept], {})


def pieces_of(mesh: Mesh, levels: Levels, groups: Iterable[Axes]) -> Vector:
    """Into how many pieces those of the axes that are of each level cut, for each group of axes."""
    ends = list(accumulate(len(axes) for axes in levels))
    return tuple(
        tuple(
            prod(mesh.sizes[a] for a in group if end - len(axes) <= a < end)
            for axes, end in zip(levels, ends, strict=True)
        )
        for group in groups
    )


def _reads(view: View, k: int, vectors: Ints) -> Any:
    index: dict[PieceCounts, int] = {}
    dims = view.reads[k] or ()
    pieces = dim_parts(view, dims, vectors)
    agg = view.ways[0].agg if view.ways else ""
    if agg:
        own = [len(view.cut_labels) + i for i, way in enumerate(view.ways) if k in way.operands]
        pieces = np.concatenate([pieces, vectors[:, own].prod(axis=1)[:, None]], axis=1)
    rows: list[list[list[int]]] = pieces.tolist()
    of = [index.setdefault(_cut(dims, row, agg), len(index)) for row in rows]
    make: Any = Reads
    return make(tuple(index), np.array(of, dtype=np.int64))


def _cut(dims: Dims, row: Sequence[Sequence[int]], agg: str) -> PieceCounts:
    """The pieces of dimensions and, if there are several, of parts of ⊕."""
    sides = _sides(dims, row[: len(dims)])
    parts = prod(row[len(dims)]) if agg else 1
    if parts == 1:
        return sides
    return (*sides, PieceCount(parts, parts, 1, parts, None, tuple(row[len(dims)]), agg))


def _sides(dims: Dims, row: Sequence[Sequence[int]]) -> PieceCounts:
    return tuple(_side(dim, tuple(n)) for dim, n in zip(dims, row, strict=True))


def _side(dim: Dim, levels: tuple[int, ...]) -> PieceCount:
    parts = prod(levels)
    units = least_units(dim, parts)
    label = dim.label
    if dim.image is not None:
        label = max(dim.image.terms, key=lambda term: abs(term[1]) * term[2])[0]
    return PieceCount(parts, units // dim.scale, dim.scale, units, label, levels)


def _homes(view: View, mesh: Mesh, levels: Levels, tile: Ints, reduced: bool) -> Ints:
    """The numbers of pieces of each dimension in which the result can be left."""
    if not reduced or tile.shape[1] == 0:
        return np.unique(tile, axis=0) if tile.shape[1] else tile[:1]
    units = tuple((d.stop - d.start) // d.scale for d in view.output)
    if len(levels) == 1:
        # One more bucket of any size holds the axes that replicate.
        spare = (*units, mesh.devices)
        every = viable_parts(spare, mesh.sizes, even=mesh.cuts_evenly)[:, :-1, None]
    else:
        every = level_vectors(units, levels, (), budgets.PIECES_AND_HOMES, mesh.pieces)
    return np.unique(np.concatenate([every, tile]), axis=0)

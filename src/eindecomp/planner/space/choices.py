"""What a vertex can choose when real bytes count: an axis for each label, a home for its result.

An *assignment* gives every mesh axis to a label, or leaves it unused where the labels are too small
for all axes (the tile is then computed along that axis several times over). What is summed over
several devices is reduce-scattered into the home: each such axis cuts a dimension or replicates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eindecomp.planner.space.cut import Cut, Span, parts_of, span_of
from eindecomp.planner.space.viable import most_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.planner.space.view import Dims, View

    Ints = NDArray[np.int64]

UNUSED = -1
Assignment = tuple[int, ...]
"""For each axis the index of the label it cuts, or UNUSED."""
REPLICATED = -1
Places = tuple[int, ...]
"""For each axis that is summed over, the dimension of the result it cuts, or REPLICATED; else 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """The cuts in which an input can be needed, and which one each assignment needs."""

    cuts: tuple[Cut, ...]
    of: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """All that a vertex can choose.

    To leave home h, assignment a moves the partial result's elements `reduced[a, h]` times and then
    the result's `gathered[a, h]` times; both are -1 if it cannot.
    """

    view: View
    mesh: Mesh
    assignments: tuple[Assignment, ...]
    parts: Ints
    reads: tuple[Reads | None, ...]
    homes: tuple[Cut, ...]
    reduced: Ints
    gathered: Ints
    places: dict[tuple[int, int], Places]
    """Where the summed axes of assignment a go to make home h."""

    @property
    def is_settled(self) -> bool:
        """Whether each assignment leaves one home."""
        return bool(((self.reduced >= 0).sum(axis=1) == 1).all())


@lru_cache(maxsize=1 << 12)
def all_assignments(
    sizes: tuple[int, ...], mesh: Mesh, redundant: bool = False
) -> tuple[Assignment, ...]:
    """Every assignment with the most pieces; with `redundant` every one with any number."""
    axes = tuple(range(len(mesh.sizes)))
    return refined(sizes, mesh, (UNUSED,) * len(axes), axes, redundant)


@lru_cache(maxsize=1 << 12)
def refined(
    sizes: tuple[int, ...],
    mesh: Mesh,
    base: Assignment,
    axes: tuple[int, ...],
    redundant: bool = False,
) -> tuple[Assignment, ...]:
    """Every assignment that agrees with `base` but for the given axes."""
    most = most_pieces(sizes, mesh.sizes)
    labels = range(UNUSED if redundant or most < mesh.devices else 0, len(sizes))
    rows = np.array(list(product(labels, repeat=len(axes))), dtype=np.int64)
    full = np.tile(np.array(base, dtype=np.int64), (len(rows), 1))
    full[:, list(axes)] = rows
    parts = parts_of_assignments(full, mesh, len(sizes))
    fits = (parts <= np.array(sizes, dtype=np.int64)).all(axis=1)
    if not redundant:
        fits &= parts.prod(axis=1) == most
    uneven = (np.array(sizes, dtype=np.int64) % np.maximum(parts, 1) != 0).sum(axis=1)
    kept = np.flatnonzero(fits)
    kept = kept[np.argsort(uneven[kept], kind="stable")]
    return tuple(tuple(row) for row in full[kept].tolist())


def parts_of_assignments(rows: Ints, mesh: Mesh, labels: int) -> Ints:
    """Into how many pieces each assignment cuts each label."""
    axis_sizes = np.array(mesh.sizes, dtype=np.int64)
    parts = [np.where(rows == label, axis_sizes, 1).prod(axis=1) for label in range(labels)]
    return np.stack(parts, axis=1) if parts else np.ones((len(rows), 0), dtype=np.int64)


@lru_cache(maxsize=1 << 12)
def choices(
    view: View,
    mesh: Mesh,
    assignments: tuple[Assignment, ...],
    settled: tuple[tuple[int, int], ...] = (),
) -> Choices:
    """The choices that these assignments leave a vertex.

    `settled` gives the places of axes that are not to be chosen again.
    """
    rows = np.array(assignments, dtype=np.int64).reshape(len(assignments), len(mesh.sizes))
    axes = _masks(rows, len(view.labels))
    reads = tuple(None if dims is None else _reads(view, dims, axes) for dims in view.reads)
    homes: dict[Cut, int] = {}
    ways: dict[tuple[int, int], _Way] = {}
    fixed = dict(settled)
    for a, own in enumerate(axes.tolist()):
        found = list(_homes(view, mesh, tuple(own), fixed))
        if not found:
            # What is settled for some axes has no room for what others have come to cut.
            found = list(_homes(view, mesh, tuple(own), dict.fromkeys(fixed, REPLICATED)))
        for home, way in found:
            key = (a, homes.setdefault(home, len(homes)))
            if key not in ways or way.copies < ways[key].copies:
                ways[key] = way
    reduced = np.full((len(rows), len(homes)), -1, dtype=np.int64)
    gathered = reduced.copy()
    for (a, h), way in ways.items():
        groups = mesh.devices // parts_of(mesh, int(axes[a].sum()))
        reduced[a, h], gathered[a, h] = groups * (way.summed - 1), groups * (way.copies - 1)
    places = {key: way.places for key, way in ways.items()}
    parts = parts_of_assignments(rows, mesh, len(view.labels))
    return Choices(view, mesh, assignments, parts, reads, tuple(homes), reduced, gathered, places)


def _masks(rows: Ints, labels: int) -> Ints:
    """For each assignment and label, the axes that cut it, as bits."""
    bits = np.int64(1) << np.arange(rows.shape[1], dtype=np.int64)
    masks = [np.where(rows == label, bits, 0).sum(axis=1) for label in range(labels)]
    return np.stack(masks, axis=1) if masks else np.zeros((len(rows), 0), dtype=np.int64)


def _reads(view: View, dims: Dims, axes: Ints) -> Reads:
    carried = [view.index(dim) for dim in dims]
    index: dict[Cut, int] = {}
    of: list[int] = []
    for own in axes.tolist():
        cut = tuple(
            span_of(dim, 0 if i is None else own[i]) for dim, i in zip(dims, carried, strict=True)
        )
        of.append(index.setdefault(cut, len(index)))
    return Reads(tuple(index), np.array(of, dtype=np.int64))


class _Way(NamedTuple):
    """How a home is reached: by so many devices summing up, so many ending with one piece."""

    summed: int
    copies: int
    places: Places


def _homes(
    view: View, mesh: Mesh, own: tuple[int, ...], fixed: dict[int, int]
) -> Iterable[tuple[Cut, _Way]]:
    """The homes of one assignment and the ways there."""
    tile = [0 if (i := view.index(dim)) is None else own[i] for dim in view.output]
    summed = sum(own[i] for i in view.aggregated)
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
            yield home, _Way(parts_of(mesh, summed), copies, tuple(placed))


def _fits(mesh: Mesh, span: Span) -> bool:
    axes = span.axes | span.inner
    return axes == 0 or parts_of(mesh, axes) <= span.units

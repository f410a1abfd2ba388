"""What a vertex can choose when real bytes count: mesh axes for its labels, a home for its result.

An *assignment* gives every mesh axis to one label. Where the labels are too small for all axes,
some axes stay unused, and all devices along an unused axis compute the same tile. Partial sums on
several devices are reduce-scattered into the home: each summed axis cuts a dimension of it or
replicates it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.planner.space.cut import Cut, span_of
from eindecomp.planner.space.reduce_scatter import REPLICATED, Places, ReduceScatter, homes_of
from eindecomp.planner.space.viable import most_pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.planner.space.view import Dims, View

    Ints = NDArray[np.int64]

UNUSED = -1
Assignment = tuple[int, ...]
"""For each axis the index of the label it cuts, or UNUSED."""


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """The cuts in which an input can be needed, and which one each assignment needs."""

    cuts: tuple[Cut, ...]
    of: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """Everything that a vertex can choose.

    To leave its result in home h, assignment a moves the partial result's elements `reduced[a, h]`
    times, then the result's elements `gathered[a, h]` times; both are -1 where h cannot be reached.
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
        """Whether each assignment can reach only one home."""
        return bool(((self.reduced >= 0).sum(axis=1) == 1).all())


@lru_cache(maxsize=1 << 12)
def all_assignments(
    sizes: tuple[int, ...], mesh: Mesh, redundant: bool = False
) -> tuple[Assignment, ...]:
    """Every assignment into the most pieces; with `redundant`, into any number of pieces."""
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
    """Every assignment that agrees with `base` on all but the given axes."""
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

    `settled` gives the places of axes whose places are already decided.
    """
    rows = np.array(assignments, dtype=np.int64).reshape(len(assignments), len(mesh.sizes))
    axes = _masks(rows, len(view.labels))
    reads = tuple(None if dims is None else _reads(view, dims, axes) for dims in view.reads)
    homes: dict[Cut, int] = {}
    ways: dict[tuple[int, int], ReduceScatter] = {}
    fixed = dict(settled)
    for a, own in enumerate(axes.tolist()):
        reached = list(homes_of(view, mesh, tuple(own), fixed))
        if not reached:
            # The places that are settled for some axes leave no room for what others now cut.
            replicated = dict.fromkeys(fixed, REPLICATED)
            reached = list(homes_of(view, mesh, tuple(own), replicated))
        for home, way in reached:
            key = (a, homes.setdefault(home, len(homes)))
            if key not in ways or way.copies < ways[key].copies:
                ways[key] = way
    reduced = np.full((len(rows), len(homes)), -1, dtype=np.int64)
    gathered = reduced.copy()
    for key, way in ways.items():
        reduced[key], gathered[key] = way.reduced, way.gathered
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

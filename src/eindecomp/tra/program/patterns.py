"""The pattern of a move: whether it is a collective, and over which axes.

Within a dimension, axes nest from the outermost in. A tile that is cut further keeps its axes as
the outer ones and lies inside the old tile; a tile that is gathered loses inner ones. Comparing the
two lists of axes, dimension by dimension, tells what a move is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.layout.cut import axes_in, is_plain, pieces_by, used_axes
from eindecomp.layout.overlaps import moved
from eindecomp.layout.pieces import CEIL

if TYPE_CHECKING:
    from eindecomp.layout.cut import Cut, Span
    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.tiling import Tiling


@dataclass(frozen=True, slots=True)
class LocalSlice:
    """Every device has what it wants already: a block of its own tile."""

    def __str__(self) -> str:
        return "local slice"


@dataclass(frozen=True, slots=True)
class Gathered:
    """An all-gather: devices that differ along `axes` put their tiles together.

    Before that, each may take a block of its own tile along other dimensions.
    """

    axes: tuple[int, ...]
    dimensions: tuple[int, ...]
    """The dimension that each axis cut."""

    def __str__(self) -> str:
        return "all-gather"


@dataclass(frozen=True, slots=True)
class Exchanged:
    """An all-to-all over `axes`: they cut dimension `source` before and `target` after."""

    axes: tuple[int, ...]
    source: int
    target: int

    def __str__(self) -> str:
        return "all-to-all"


@dataclass(frozen=True, slots=True)
class Permuted:
    """Every device receives one whole tile of another."""

    def __str__(self) -> str:
        return "permutation"


@dataclass(frozen=True, slots=True)
class PointToPoint:
    """Anything else: blocks from one device to another."""

    def __str__(self) -> str:
        return "point to point"


Pattern = LocalSlice | Gathered | Exchanged | Permuted | PointToPoint


def pattern_of(mesh: Mesh, held: Tiling, wanted: Tiling) -> Pattern:
    """The pattern of a move from one tiling to another."""
    if held.split and not wanted.split and held.cut == wanted.cut:
        # The shares of a tile lie side by side along its longest side.
        return Gathered(axes_in(mesh, held.split), ())
    if held.split or wanted.split or not is_plain(held.cut) or not is_plain(wanted.cut):
        return PointToPoint()
    if not moved(mesh, [held.cut], [wanted.cut])[0, 0]:
        return LocalSlice()
    return _collective(mesh, held.cut, wanted.cut) or _permutation(mesh, held.cut, wanted.cut)


def _collective(mesh: Mesh, held: Cut, wanted: Cut) -> Gathered | Exchanged | None:
    lost: dict[int, int] = {}
    gained: dict[int, int] = {}
    for dimension, (ours, theirs) in enumerate(zip(held, wanted, strict=True)):
        if not _comparable(mesh, ours, theirs):
            return None
        before, after = ours.axes, theirs.axes
        shared = min(len(before), len(after))
        if before[:shared] != after[:shared]:
            return None
        lost |= dict.fromkeys(before[shared:], dimension)
        gained |= dict.fromkeys(after[shared:], dimension)
    both = lost.keys() & gained.keys()
    if not both:
        return Gathered(tuple(lost), tuple(lost.values()))
    if both == lost.keys() and len({lost[a] for a in both}) == 1 == len({gained[a] for a in both}):
        axes = tuple(lost)
        # Each device's piece goes where the other dimension wants it only if both nest alike.
        if tuple(a for a in gained if a in both) == axes:
            return Exchanged(axes, lost[axes[0]], gained[axes[0]])
    return None


def _comparable(mesh: Mesh, ours: Span, theirs: Span) -> bool:
    """Whether axes that two spans share cut both at the same places."""
    if (ours.start, ours.stop) != (theirs.start, theirs.stop):
        return False
    if (ours.units, ours.scale) == (theirs.units, theirs.scale):
        return True
    return all(span.units % pieces_by(mesh, span.axes) == 0 for span in (ours, theirs))


def _same_grid(mesh: Mesh, ours: Span, theirs: Span) -> bool:
    """Whether two spans that are comparable have the same pieces, in whatever order of axes."""
    parts = pieces_by(mesh, ours.axes)
    if mesh.pieces == CEIL and ours.units % parts:
        # Chunks of chunks depend on how many there are at each level.
        return [mesh.sizes[a] for a in ours.axes] == [mesh.sizes[a] for a in theirs.axes]
    return parts == pieces_by(mesh, theirs.axes)


def _permutation(mesh: Mesh, held: Cut, wanted: Cut) -> Permuted | PointToPoint:
    """Whether the same grid of tiles is only numbered in another way."""
    if used_axes(held) != used_axes(wanted):  # one tile would go to several devices
        return PointToPoint()
    for ours, theirs in zip(held, wanted, strict=True):
        if not _comparable(mesh, ours, theirs):
            return PointToPoint()
        if not _same_grid(mesh, ours, theirs):
            return PointToPoint()
    return Permuted()

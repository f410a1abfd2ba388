"""Cuts of tensors: which part of a tensor every device holds or needs.

A *cut* of a tensor has one `Span` per dimension, naming the mesh axes that cut it. Within a
dimension, axes nest in mesh order, but what a reduce-scatter cuts again lies inside the tile that
was there before. Piece k of n units cut m ways is `k*n//m : (k+1)*n//m`: the sizes of pieces
differ by at most one unit, and the pieces of a finer cut lie inside those of the coarser one.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.planner.space.view import Dim

    Ints = NDArray[np.int64]

KEPT = 1 << 13  # the most devices for which intervals are cached


class Span(NamedTuple):
    """A dimension on every device: a piece of `units` blocks of `scale` elements, or a window.

    `axes` are the mesh axes that cut it, as bits; `inner` are those that then cut its pieces again.
    Without any, it is `start:stop` on every device.
    """

    axes: int
    inner: int
    units: int
    scale: int
    start: int
    stop: int


Cut = tuple[Span, ...]


def span_of(dim: Dim, axes: int, inner: int = 0) -> Span:
    """The span of a dimension that these axes cut; equal boxes make equal spans."""
    if axes.bit_length() <= (inner & -inner).bit_length() - 1 or not axes:
        axes, inner = axes | inner, 0  # in mesh order anyway
    units = (dim.stop - dim.start) // dim.scale
    return Span(axes, inner, units, dim.scale, dim.start, dim.stop)


def parts_of(mesh: Mesh, axes: int) -> int:
    """Into how many pieces a set of axes cuts."""
    return prod(size for a, size in enumerate(mesh.sizes) if axes >> a & 1)


def used_axes(cut: Cut) -> int:
    """All axes that cut some dimension."""
    used = 0
    for span in cut:
        used |= span.axes | span.inner
    return used


def is_plain(cut: Cut) -> bool:
    """Whether no axis cuts two dimensions, as it does on a diagonal."""
    used = 0
    for span in cut:
        if used & (span.axes | span.inner):
            return False
        used |= span.axes | span.inner
    return True


def nested_axes(mesh: Mesh, span: Span) -> list[int]:
    """The axes that cut a span, outermost first."""
    order = range(len(mesh.sizes))
    return [a for axes in (span.axes, span.inner) for a in order if axes >> a & 1]


def interval(mesh: Mesh, span: Span) -> tuple[Ints, Ints]:
    """Where the span begins and ends on every device."""
    if mesh.devices <= KEPT:
        return _kept_interval(mesh, span)
    return _interval(mesh, span)


@lru_cache(maxsize=1 << 12)
def _kept_interval(mesh: Mesh, span: Span) -> tuple[Ints, Ints]:
    return _interval(mesh, span)


def _interval(mesh: Mesh, span: Span) -> tuple[Ints, Ints]:
    stride = dict.fromkeys(range(len(mesh.sizes)), 0)
    parts = 1
    for axis in reversed(nested_axes(mesh, span)):
        stride[axis] = parts
        parts *= mesh.sizes[axis]
    index = np.zeros(1, dtype=np.int64)
    for axis, size in reversed(list(enumerate(mesh.sizes))):
        index = np.add.outer(stride[axis] * np.arange(size, dtype=np.int64), index).ravel()
    low = span.start + span.scale * (index * span.units // parts)
    high = span.start + span.scale * ((index + 1) * span.units // parts)
    return low, high


def largest_side(mesh: Mesh, span: Span) -> int:
    """The most elements of a dimension that any device holds."""
    return -(-span.units // parts_of(mesh, span.axes | span.inner)) * span.scale


def boxes_key(mesh: Mesh, cut: Cut) -> tuple[bytes, ...]:
    """Equal for cuts that give every device the same box."""
    ends = (end for span in cut for end in interval(mesh, span))
    return tuple(end.tobytes() for end in ends)


def outer_cut(cut: Cut, axes: int) -> Cut:
    """What all devices with the same coordinates on this many outer axes hold together."""
    kept = (1 << axes) - 1
    return tuple(span._replace(axes=span.axes & kept, inner=span.inner & kept) for span in cut)

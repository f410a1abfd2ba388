"""What windows show of NumPy's arrays."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from eindecomp.graph.shown import Shown
from eindecomp.lang.dtypes import Array
from eindecomp.lang.index import CLAMP


def view(tile: Array, shown: Shown) -> Array:
    """A view of the tile, or of a copy with what lies outside beside it."""
    if not shown.is_filled:
        tile = _beside(tile, shown)
    start = tile[tuple(slice(at, None) for at in shown.starts)] if tile.ndim else tile
    return as_strided(start, shown.shape, shown.strides(tile.strides), writeable=False)


def _beside(tile: Array, shown: Shown) -> Array:
    """All places that are needed of a tile, with its elements where they stand."""
    for axis, own in enumerate(shown.places):
        if own.outside == CLAMP and not own.is_filled:
            tile = np.take(tile, np.clip(np.arange(own.count) - own.start, 0, own.size - 1), axis)
    done = [own.outside == CLAMP or own.is_filled for own in shown.places]
    if all(done):
        return tile
    ends = zip(done, tile.shape, shown.places, strict=True)
    made = np.empty([size if is_done else own.count for is_done, size, own in ends], tile.dtype)
    inside = [slice(None)] * tile.ndim
    for axis, own in enumerate(shown.places):
        if not done[axis]:
            made[tuple(inside)] = own.outside
            inside[axis] = own.slice
    made[tuple(inside)] = tile
    return made

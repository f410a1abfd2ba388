"""The tiles of partition vectors: pieces of each dimension, and the sides of the largest tile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eindecomp.layout.view import Dims, View

    Ints = NDArray[np.int64]


def dim_parts(view: View, dims: Dims, parts: Ints) -> Ints:
    """The number of pieces of each dimension, one row per partition vector."""
    ones = np.ones(len(parts), dtype=np.int64)
    columns = [ones if (i := view.index(dim)) is None else parts[:, i] for dim in dims]
    return np.stack(columns, axis=1) if columns else np.ones((len(parts), 0), dtype=np.int64)


def tile_sides(dims: Dims, pieces: Ints) -> Ints:
    """The sides of the largest tile, one row per partition vector."""
    units = np.array([(d.stop - d.start) // d.scale for d in dims], dtype=np.int64)
    scale = np.array([d.scale for d in dims], dtype=np.int64)
    return -(-units // pieces) * scale

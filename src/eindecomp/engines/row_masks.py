"""Rows of a table that an index names, and copying only those."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eindecomp.layout.boxes import Box
from eindecomp.layout.view import NamedRows


@dataclass(frozen=True, slots=True)
class RowMask:
    """Which rows of a block are named, by their places along the dimensions that number rows."""

    along: tuple[int, ...]
    mask: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """How many rows are named."""
        return int(self.mask.sum())

    def copy(self, target: Any, source: Any) -> int:
        """Copy the named rows of one array of the block to another; how many bytes they have."""
        first = range(len(self.along))
        into, of = (np.moveaxis(array, self.along, first) for array in (target, source))
        into[self.mask] = of[self.mask]
        return self.count * prod(into.shape[len(self.along) :]) * target.itemsize


def named_in(named: NamedRows, index: Any, at: Box, box: Box) -> RowMask:
    """The rows of a block of a table that a block `at` of an index names.

    >>> rows = NamedRows(False, axis=0, index=("n",), dims=(None, "d"))
    >>> named_in(rows, np.array([5, 1, 5]), ((0, 3),), ((4, 8), (0, 2))).mask
    array([False,  True, False, False])
    """
    places: list[Any] = []
    index = index.astype(np.int64)
    for d in named.along:
        place = index
        if d != named.axis:  # a label that the index has too
            k = named.index.index(str(named.dims[d]))
            shape = [-1 if j == k else 1 for j in range(index.ndim)]
            place = np.broadcast_to(np.arange(*at[k]).reshape(shape), index.shape)
        places.append(place - box[d][0])
    sides = tuple(box[d][1] - box[d][0] for d in named.along)
    inside = np.ones(index.shape, dtype=bool)
    for place, side in zip(places, sides, strict=True):
        inside &= (place >= 0) & (place < side)
    mask = np.zeros(sides, dtype=bool)
    mask[tuple(place[inside] for place in places)] = True
    return RowMask(named.along, mask)

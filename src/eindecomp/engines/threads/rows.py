"""Reading only those rows of a stored table that an index names, by slices, which all storage has.

Rows that lie in one chunk are read at once, as their storage would read all of it for each.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.kernels.cpu.moves import check_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    Array = np.ndarray[Any, Any]

_SLAB = 1 << 23  # bytes that are read at once, unless a chunk is larger


def read_rows(
    stored: Any, where: tuple[slice, ...], axis: int, index: Array
) -> tuple[Array, Array]:
    """The rows of a tile that are looked up along an axis, each once, and the index into them.

    >>> table = np.arange(20).reshape(10, 2)
    >>> read_rows(table, (slice(0, 10), slice(1, 2)), 0, np.array([7, 3, 7]))
    (array([[ 7],
           [15]]), array([1, 0, 1]))
    """
    start, stop = where[axis].start, where[axis].stop
    check_index(index, stop - start)
    rows, inverse = np.unique(index, return_inverse=True)
    shape = [part.stop - part.start for part in where]
    shape[axis] = len(rows)
    found = np.empty(shape, stored.dtype)
    chunk = _chunk(stored, axis)
    row_bytes = found.nbytes // max(1, len(rows))
    most = max(chunk, _SLAB // max(1, row_bytes))
    before = (slice(None),) * axis
    for low, high in _groups(rows, chunk, most):
        first, last = int(rows[low]), int(rows[high - 1])
        slab = slice(start + first, start + last + 1)
        read = np.asarray(stored[(*where[:axis], slab, *where[axis + 1 :])])
        found[(*before, slice(low, high))] = read[(*before, rows[low:high] - first)]
    return found, inverse.reshape(index.shape)


def _groups(rows: Array, chunk: int, most: int) -> Iterator[tuple[int, int]]:
    """Which rows, by their positions, are read at once: near each other, and not too many."""
    if not len(rows):
        return
    apart = (np.diff(rows) > chunk) | (np.diff(rows // most) > 0)
    bounds = [0, *(np.flatnonzero(apart) + 1).tolist(), len(rows)]
    yield from pairwise(bounds)


def _chunk(stored: Any, axis: int) -> int:
    """How many rows are stored together, as far as that is told."""
    chunks: Any = getattr(stored, "chunks", None)
    try:
        return max(1, int(chunks[axis]))
    except (TypeError, ValueError, IndexError):  # none, or of several sizes
        return 1

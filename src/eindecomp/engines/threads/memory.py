"""The arrays of one run: made before the first write, dropped after the last use.

Threads share memory, so a tensor is one array whatever its layouts: a tile is a view of it, written
in place, and reading a piece copies nothing. Partial results have arrays of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from mmap import mmap
from typing import Any

import numpy as np

from eindecomp.engines.resources import Spare
from eindecomp.engines.tensor import reading_input
from eindecomp.kernels.cpu.library import check_index
from eindecomp.lang.dtypes import Array, DType

Key = str | tuple[str, int, int]
"""A tensor's name; or its name, a tile that holds a partial result, and an array of that state."""
Where = tuple[slice, ...] | None
"""A tile of an array; None for all of it."""
_SLAB = 1 << 23  # bytes of rows read at a time, unless a chunk is larger


def is_in_memory(array: Any) -> bool:
    """Whether an array's elements are in memory, not mapped from a file nor stored elsewhere."""
    owner = array
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    return isinstance(array, np.ndarray) and not isinstance(owner, mmap)


class Memory:
    """The arrays of one run by key, and the bytes that they take.

    `held` counts inputs in memory, and tiles read from inputs outside it.
    """

    def __init__(
        self,
        given: Mapping[str, Any],
        scalars: Sequence[object],
        shapes: Mapping[Key, tuple[tuple[int, ...], DType]],
        held: int = 0,
        spare: Spare | None = None,
    ) -> None:
        self.scalars = scalars
        self._spare = spare
        self._shapes = shapes
        self._arrays: dict[Key, Any] = {**given}
        self._given = frozenset(given)
        self.stored = {name for name, array in given.items() if not isinstance(array, np.ndarray)}
        """The inputs that are read by slices when they are needed."""
        self._held = self.peak = held

    def read(self, key: Key, where: Where) -> Array:
        """A tile: a view of a NumPy array, or what is read from storage."""
        array = self._arrays[key]
        if key in self.stored:
            with reading_input(f"input {key!r}"):
                return np.asarray(array[... if where is None else where])
        return array if where is None else array[where]

    def read_rows(self, key: Key, where: Where, axis: int, index: Array) -> tuple[Array, Array]:
        """A tile to look rows up in, and the index; storage is read only for those rows."""
        if key not in self.stored:
            return self.read(key, where), index
        array = self._arrays[key]
        with reading_input(f"input {key!r}"):
            return read_rows(array, where or tuple(slice(0, n) for n in array.shape), axis, index)

    def write(self, key: Key, where: Where) -> Array:
        """The view that a tile is written to."""
        array = self._arrays[key]
        return array if where is None else array[where]

    def make(self, keys: Sequence[Key]) -> None:
        """Make the arrays that the next step writes."""
        for key in keys:
            shape, dtype = self._shapes[key]
            spare = self._spare
            array = np.empty(shape, dtype) if spare is None else spare.make(shape, dtype)
            self._held += array.nbytes
            self._arrays[key] = array
        self.peak = max(self.peak, self._held)

    def drop(self, keys: Sequence[Key]) -> list[tuple[str, int]]:
        """Drop arrays; returns the tensors and bytes of those that the run made."""
        dropped: list[tuple[str, int]] = []
        for key in keys:
            array = self._arrays.pop(key)
            if key in self._given:
                continue
            self._held -= array.nbytes
            if self._spare is not None:
                self._spare.give(array)
            dropped.append((key if isinstance(key, str) else key[0], array.nbytes))
        return dropped

    def clear(self) -> None:
        """Drop everything."""
        self._arrays.clear()

    def outputs(self, names: Sequence[str]) -> dict[str, Array]:
        """Tensors by name; an input is copied."""
        copied = {name: np.array(self.read(name, None)) for name in names if name in self._given}
        return {name: self._arrays[name] for name in names} | copied


def read_rows(
    stored: Any, where: tuple[slice, ...], axis: int, index: Array
) -> tuple[Array, Array]:
    """The rows of a stored tile that an index names along an axis, and the index into them.

    Each row is read once, by slices, which every storage has. Rows of one chunk are read together,
    since storage reads the whole chunk for any of them.

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
    table = np.empty(shape, stored.dtype)
    chunk = _chunk(stored, axis)
    row_bytes = table.nbytes // max(1, len(rows))
    most = max(chunk, _SLAB // max(1, row_bytes))
    before = (slice(None),) * axis
    for low, high in _groups(rows, chunk, most):
        first, last = int(rows[low]), int(rows[high - 1])
        slab = slice(start + first, start + last + 1)
        read = np.asarray(stored[(*where[:axis], slab, *where[axis + 1 :])])
        table[(*before, slice(low, high))] = read[(*before, rows[low:high] - first)]
    return table, inverse.reshape(index.shape)


def _groups(rows: Array, chunk: int, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of positions whose rows are read together: near each other, and not too many."""
    if not len(rows):
        return
    apart = (np.diff(rows) > chunk) | (np.diff(rows // most) > 0)
    bounds = [0, *(np.flatnonzero(apart) + 1).tolist(), len(rows)]
    yield from pairwise(bounds)


def _chunk(stored: Any, axis: int) -> int:
    """How many rows a chunk of the storage has, 1 if it does not say."""
    chunks: Any = getattr(stored, "chunks", None)
    try:
        return max(1, int(chunks[axis]))
    except (TypeError, ValueError, IndexError):  # none, or of several sizes
        return 1

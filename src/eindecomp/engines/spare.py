"""Large arrays that are of no more use, kept to make others of.

Fresh memory costs about as much as filling it: the system clears it page by page. Whoever runs one
plan again and again, as training does, keeps what a run drops for the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]

LARGE = 1 << 20
"""Bytes from which an array is worth keeping."""


class Spare:
    """Arrays by shape and type; safe to use from several threads.

    >>> spare, array = Spare(), np.ones((1024, 512), np.float32)
    >>> spare.give(array)
    >>> spare.make(array.shape, array.dtype) is array
    True
    """

    def __init__(self) -> None:
        self._arrays: dict[tuple[tuple[int, ...], DType], list[Array]] = {}

    def give(self, array: Array) -> None:
        """Keep an array that nobody reads any more."""
        if array.nbytes >= LARGE and self._is_own(array) and array.flags.c_contiguous:
            self._arrays.setdefault((array.shape, array.dtype), []).append(array)

    def make(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """An array with anything in it."""
        if not self._arrays:
            return self._new(shape, dtype)
        try:
            return self._arrays[shape, dtype].pop()
        except (KeyError, IndexError):
            return self._new(shape, dtype)

    def _new(self, shape: tuple[int, ...], dtype: DType) -> Array:
        return np.empty(shape, dtype)

    def _is_own(self, array: Array) -> bool:
        """Whether an array has memory that nobody else has."""
        return array.base is None

    @property
    def nbytes(self) -> int:
        """How much is kept."""
        return sum(array.nbytes for kept in self._arrays.values() for array in kept)

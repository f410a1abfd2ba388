"""Tiles that are NumPy's arrays, in the memory of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.blocks import as_numpy, block_of
from eindecomp.engines.spare import Spare
from eindecomp.engines.spmd.direct import neighbours_of
from eindecomp.engines.spmd.shared_arrays import SharedSpare
from eindecomp.graph.arrays import to_stored
from eindecomp.kernels.library import library_of

if TYPE_CHECKING:
    from eindecomp.engines.spmd.transport import Transport
    from eindecomp.engines.spmd.watch import Watch
    from eindecomp.layout.boxes import Box

    Array = np.ndarray[Any, Any]

_WORDS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64, 16: np.int64}
"""Elements travel as bits, since no transport knows all types."""


class HostArrays:
    """NumPy's arrays, which ranks of one machine can read where they are.

    >>> HostArrays.words(np.ones((2, 2), np.float16)).tolist()
    [15360, 15360, 15360, 15360]
    """

    kind = "numpy"
    words_in = dict.fromkeys(_WORDS, 1) | {16: 2}
    stored = staticmethod(to_stored)

    def __init__(self, transport: Transport) -> None:
        self.library = library_of("numpy")
        self.carrier = transport

    def block(self, given: Any, box: Box, *, copy: bool) -> Array:
        """A block of what was given; one of an array is that itself if it lies in one piece."""
        if copy or type(given) is not np.ndarray:
            return block_of(given, box)
        where = tuple(slice(low, high) for low, high in box)
        return np.asarray(given[where], order="C")

    @staticmethod
    def taken(block: Any) -> Array:
        """A block of a tensor, which may be on a device."""
        return block if type(block) is np.ndarray else as_numpy(block)

    @staticmethod
    def is_in_one_piece(array: Array) -> bool:
        """Whether an array lies row by row, without gaps."""
        return array.flags.c_contiguous

    @staticmethod
    def in_one_piece(array: Array) -> Array:
        """An array that does so: itself, or a copy."""
        return np.ascontiguousarray(array)

    @staticmethod
    def words(array: Array) -> Array:
        """An array in one piece as a flat one of integers, with the same bits."""
        return array.reshape(-1).view(_WORDS[array.itemsize])

    @staticmethod
    def flat(count: int, like: Array) -> Array:
        """A new flat array of another's type, with anything in it."""
        return np.empty(count, like.dtype)

    def sources(self) -> tuple[Spare, Spare]:
        """Large arrays are used again, those in files of memory too."""
        return Spare(), SharedSpare()

    def neighbours(self) -> dict[int, int]:
        """The ranks of this machine, if the system lets them read each other's memory."""
        return neighbours_of(self.carrier)

    def settle(self) -> None:
        """Nothing is ever left to do."""

    def pace(self, watch: Watch) -> None:
        """Nothing is ever left to do."""
        del watch

"""Tiles that are NumPy's arrays, in the host's memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from eindecomp.engines.resources import Spare
from eindecomp.engines.spmd.exchange import Carrier, Transport
from eindecomp.engines.tensor import as_numpy, block_of
from eindecomp.graph.arrays import to_stored
from eindecomp.kernels.library import KernelLibrary, library_of
from eindecomp.lang.dtypes import Array, DType
from eindecomp.layout.boxes import Box


class HostArrays:
    """NumPy's arrays; large ones are used again."""

    kind = "numpy"
    stored = staticmethod(to_stored)

    def __init__(self, transport: Transport) -> None:
        self.library: KernelLibrary = library_of("numpy")
        self.carrier: Carrier = transport
        self.let_go()

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

    def flat(self, count: int, like: Array) -> Array:
        """A flat array of another's type, with anything in it."""
        return self._spare.make((count,), like.dtype)

    def make(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """An array with anything in it, made of one that was given if there is one like it."""
        return self._spare.make(shape, dtype)

    def give(self, array: Array) -> None:
        """Keep a large array for the next one like it."""
        self._spare.give(array)

    def let_go(self) -> None:
        """Keep no array any longer."""
        self._spare = Spare()

    def settle(self) -> None:
        """Nothing is ever left to do."""

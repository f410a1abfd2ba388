"""The kernel call of a step, which does nothing twice that is the same from run to run.

A rank computes the same tile in every run, mostly in the very arrays of the run before. A kernel
then need not look at them again.
"""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any
from weakref import ref

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.kernels.library import TileKernel

    Array = Any


class TileCall:
    """Computes a tile, or the state of its share of an aggregation."""

    __slots__ = ("_arrays", "_is_partial", "_kernel", "_ready")

    def __init__(self, kernel: TileKernel, is_partial: bool) -> None:
        self._kernel, self._is_partial = kernel, is_partial
        self._arrays: list[Callable[[], Array | None]] = []
        self._ready: Callable[[], None] | None = None
        """What computes the tile in these arrays, which live no longer for it."""

    def __call__(
        self, operands: Sequence[Array | None], outputs: Sequence[Array], scalars: Sequence[object]
    ) -> None:
        """Compute it into the outputs."""
        arrays = (*operands, *outputs)
        if self._known(arrays):
            if self._ready is not None:
                self._ready()
                return
            self._ready = self._kernel.ready(operands, outputs, partial=self._is_partial)
        else:
            self._ready = None
            self._arrays = [_nothing if array is None else ref(array) for array in arrays]
        if self._is_partial:
            self._kernel.partial(operands, outputs, scalars)
        else:
            self._kernel.whole(operands, outputs[0], scalars)

    def _known(self, arrays: Sequence[Array | None]) -> bool:
        """Whether these are the arrays of the run before."""
        known = self._arrays
        return len(known) == len(arrays) and all(map(is_, [each() for each in known], arrays))


def _nothing() -> None:
    """An operand that is not read."""

"""`TorchKernel`: the protocol of kernels around functions that make new tensors.

The functions are what an engine traces and compiles, many vertices at a time; by `make_fx`, since
Dynamo cannot follow functions without builtins, which those of scalar expressions are. They write
nowhere and never look at elements; what they give may be a view, of an operand too. Whoever
computes tile by tile into arrays of their own uses the protocol, which copies what they give.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from eindecomp.kernels.library import Tile
    from eindecomp.lang.dtypes import DType

    Operands = Sequence[Tensor | None]
    States = tuple[Tensor, ...]


class TorchKernel(ABC):
    """What computes tiles of one vertex. `shape` is the shape of the tile that is computed.

    It may be left out unless the output has labels that no operand given has.
    """

    state: tuple[DType, ...]
    """The types in which partial results are held."""
    state_is_result: bool
    """Whether a state is one tensor of the result's type that needs no finishing."""
    is_product: bool = False
    """Whether matrix products may compute it."""

    @abstractmethod
    def result(
        self,
        operands: Operands,
        scalars: Sequence[object] = (),
        shape: Sequence[int] | None = None,
    ) -> Tensor:
        """The finished result, as a new tensor or a view."""

    @abstractmethod
    def states(
        self,
        operands: Operands,
        scalars: Sequence[object] = (),
        shape: Sequence[int] | None = None,
    ) -> States:
        """The state of this tile's share of an aggregation, as new tensors or views."""

    @abstractmethod
    def combined(self, a: Sequence[Tensor], b: Sequence[Tensor]) -> States:
        """Two states combined, element by element, as new tensors."""

    @abstractmethod
    def finished(self, states: Sequence[Tensor]) -> Tensor:
        """The result that a state stands for."""

    def check(self, operands: Operands, shape: Sequence[int]) -> None:
        """Raise if an index among the operands is out of range; it waits for the device."""
        del operands, shape  # most have none

    def whole(self, operands: Operands, out: Tensor, scalars: Sequence[object] = ()) -> None:
        """Compute the finished result into `out`, which may have any strides."""
        self.check(operands, out.shape)
        out.copy_(self.result(operands, scalars, out.shape))

    def wholes(self, tiles: Sequence[Tile], scalars: Sequence[object] = ()) -> None:
        """Compute several tiles, one after another."""
        for operands, out in tiles:
            self.whole(operands, out, scalars)

    def partial(
        self, operands: Operands, state: Sequence[Tensor], scalars: Sequence[object] = ()
    ) -> None:
        """Compute the unfinished states of this tile into the given arrays."""
        self.check(operands, state[0].shape)
        _copy(state, self.states(operands, scalars, state[0].shape))

    def combine(self, into: Sequence[Tensor], other: Sequence[Tensor]) -> None:
        """Combine two states, element by element, into the first."""
        _copy(into, self.combined(into, other))

    def finish(self, state: Sequence[Tensor], out: Tensor) -> None:
        """Turn a state into the result."""
        out.copy_(self.finished(state))


def _copy(into: Sequence[Tensor], found: Sequence[Tensor]) -> None:
    for target, source in zip(into, found, strict=True):
        target.copy_(source)

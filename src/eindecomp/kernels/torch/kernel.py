"""`TorchKernel`: the protocol of kernels around functions that make new tensors.

The functions are what an engine traces and compiles, many vertices at a time; by `make_fx`, since
Dynamo cannot follow functions without builtins, which those of scalar expressions are. They write
nowhere and never look at elements; what they give may be a view, of an operand too. Whoever
computes tile by tile into arrays of their own uses the protocol, which copies what they give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from eindecomp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from eindecomp.kernels.library import Tile
    from eindecomp.lang.dtypes import DType

    Operands = Sequence[Tensor | None]
    States = tuple[Tensor, ...]


class TileFunctions(Protocol):
    """What a vertex computes on tiles. `shape` is the shape of the tile that is computed.

    It may be left out unless the output has labels that no operand given has.
    """

    @property
    def state(self) -> tuple[DType, ...]:
        """The types in which partial results are held."""
        ...

    @property
    def state_is_result(self) -> bool:
        """Whether a state is one tensor of the result's type that needs no finishing."""
        ...

    @property
    def is_product(self) -> bool:
        """Whether matrix products may compute it."""
        ...

    @property
    def adds(self) -> bool:
        """Whether results may be added to what an array holds."""
        ...

    def result(
        self,
        operands: Operands,
        scalars: Sequence[object] = (),
        shape: Sequence[int] | None = None,
    ) -> Tensor:
        """The finished result."""
        ...

    def states(
        self,
        operands: Operands,
        scalars: Sequence[object] = (),
        shape: Sequence[int] | None = None,
    ) -> States:
        """The state of this tile's share of an aggregation."""
        ...

    def combined(self, a: Sequence[Tensor], b: Sequence[Tensor]) -> States:
        """Two states combined, element by element."""
        ...

    def finished(self, states: Sequence[Tensor]) -> Tensor:
        """The result that a state stands for."""
        ...

    def check(self, operands: Operands, shape: Sequence[int]) -> None:
        """Raise if elements of the operands are wrong, which the functions cannot see."""
        ...


@dataclass(frozen=True, slots=True)
class TorchKernel:
    """What computes tiles of one vertex; its functions are its own attributes, too."""

    functions: TileFunctions

    @property
    def state(self) -> tuple[DType, ...]:
        """The types in which partial results are held."""
        return self.functions.state

    @property
    def state_is_result(self) -> bool:
        """Whether a state is one tensor of the result's type that needs no finishing."""
        return self.functions.state_is_result

    @property
    def is_product(self) -> bool:
        """Whether matrix products may compute it."""
        return self.functions.is_product

    @property
    def adds(self) -> bool:
        """Whether `add` may be called."""
        return self.functions.adds

    def result(
        self,
        operands: Operands,
        scalars: Sequence[object] = (),
        shape: Sequence[int] | None = None,
    ) -> Tensor:
        """The finished result, as a new tensor or a view."""
        return self.functions.result(operands, scalars, shape)

    def states(
        self,
        operands: Operands,
        scalars: Sequence[object] = (),
        shape: Sequence[int] | None = None,
    ) -> States:
        """The state of this tile's share of an aggregation, as new tensors or views."""
        return self.functions.states(operands, scalars, shape)

    def combined(self, a: Sequence[Tensor], b: Sequence[Tensor]) -> States:
        """Two states combined, element by element, as new tensors."""
        return self.functions.combined(a, b)

    def finished(self, states: Sequence[Tensor]) -> Tensor:
        """The result that a state stands for."""
        return self.functions.finished(states)

    def check(self, operands: Operands, shape: Sequence[int]) -> None:
        """Raise if an index among the operands is out of range; it waits for the device."""
        self.functions.check(operands, shape)

    def whole(self, operands: Operands, out: Tensor, scalars: Sequence[object] = ()) -> None:
        """Compute the finished result into `out`, which may have any strides."""
        self.check(operands, out.shape)
        out.copy_(self.result(operands, scalars, out.shape))

    def wholes(
        self, tiles: Sequence[Tile], scalars: Sequence[object] = (), *, add: bool = False
    ) -> None:
        """Compute several tiles, or add them to what their outputs hold, one after another."""
        for operands, out in tiles:
            if add:
                self.add(operands, out)
            else:
                self.whole(operands, out, scalars)

    def add(self, operands: Operands, out: Tensor) -> None:
        """Add the result to what `out` holds, only where `adds`."""
        if not self.adds:
            raise InputError(f"{self.functions} cannot be added to what an array holds")
        out.add_(self.result(operands, (), out.shape))

    def partial(
        self, operands: Operands, state: Sequence[Tensor], scalars: Sequence[object] = ()
    ) -> None:
        """Compute the unfinished states of this tile into the given arrays."""
        self.check(operands, state[0].shape)
        _copy(state, self.states(operands, scalars, state[0].shape))

    def ready(
        self, operands: Operands, outputs: Sequence[Tensor], *, partial: bool = False
    ) -> None:
        """Nothing is known from one time to the next."""
        del operands, outputs, partial

    def combine(self, into: Sequence[Tensor], other: Sequence[Tensor]) -> None:
        """Combine two states, element by element, into the first."""
        _copy(into, self.combined(into, other))

    def finish(self, state: Sequence[Tensor], out: Tensor) -> None:
        """Turn a state into the result."""
        out.copy_(self.finished(state))


def _copy(into: Sequence[Tensor], found: Sequence[Tensor]) -> None:
    for target, source in zip(into, found, strict=True):
        target.copy_(source)

"""Kernels of convolutions and pools: torch's own where it has one for a tile, else as EinSums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from eindecomp.kernels.convolutions import Convolution, Pool, Seen
from eindecomp.kernels.torch.kernel import TorchKernel
from eindecomp.kernels.torch.tensors import cast, torch_type
from eindecomp.kernels.torch.windows import convolved, pooled, view

if TYPE_CHECKING:
    from eindecomp.kernels.torch.einsum import EinSumKernel
    from eindecomp.kernels.torch.kernel import Scalars, Shape, States

Given = Sequence[Seen | Tensor | None]


class WindowKernel(TorchKernel):
    """A convolution or a pool, of tiles with what windows show of them."""

    window = Seen

    def __init__(self, own: Convolution | Pool, other: EinSumKernel) -> None:
        self._own, self._other, self.state = own, other, other.state

    def result(self, operands: Any, scalars: Scalars, shape: Shape) -> Tensor:
        """The finished result."""
        made = self._computed(operands)
        if made is None:
            return self._other.result(_views(operands), scalars, shape)
        return cast(made, self._other.out, made.device)

    def states(self, operands: Any, scalars: Scalars, shape: Shape) -> States:
        """The unfinished states of this tile's share of an aggregation."""
        made = self._computed(operands)
        if made is None:
            return self._other.states(_views(operands), scalars, shape)
        return (cast(made, self.state[0], made.device),)

    def combined(self, a: Sequence[Tensor], b: Sequence[Tensor]) -> States:
        """Two states combined, element by element, as new tensors."""
        return self._other.combined(a, b)

    def finished(self, states: Sequence[Tensor]) -> Tensor:
        """The result that a state stands for."""
        return self._other.finished(states)

    def __str__(self) -> str:
        return str(self._other)

    def _computed(self, operands: Given) -> Tensor | None:
        """Sums in the type of the state; of two operands those of low precision are widened."""
        held = torch_type(self.state[0])
        match self._own:
            case Pool() as own:
                seen = operands[0]
                if not isinstance(seen, Seen):
                    return None
                return pooled(own, Seen(seen.tile.to(held), seen.shown))
            case own:
                seen, other = operands[own.seen], operands[1 - own.seen]
                if not isinstance(seen, Seen) or not isinstance(other, Tensor):
                    return None
                return convolved(own, Seen(seen.tile.to(held), seen.shown), other.to(held))


def _views(operands: Given) -> list[Tensor | None]:
    return [view(x.tile, x.shown) if isinstance(x, Seen) else x for x in operands]

"""The protocol of kernels for JAX: functions that are traced, and give new arrays.

JAX's arrays cannot be written to, so a kernel here has no output to compute into, as those of
`kernels.library` have. An engine traces them within a program of its own and compiles all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jax

    Operands = Sequence[jax.Array | None]
    States = tuple[jax.Array, ...]


class TracedKernel(Protocol):
    """What a vertex computes on tiles; `shape` is the shape of the tile that is computed.

    An operand that the vertex never reads only lends its labels, and is None.
    """

    @property
    def sums(self) -> bool:
        """Whether states are combined by adding them."""
        ...

    def result(self, operands: Operands, scalars: Sequence[object], shape: Sequence[int]) -> States:
        """The finished result, alone."""
        ...

    def states(self, operands: Operands, scalars: Sequence[object], shape: Sequence[int]) -> States:
        """The state of this tile's share of an aggregation."""
        ...

    def combined(self, a: States, b: States) -> States:
        """Two states combined, element by element."""
        ...

    def finished(self, states: States) -> jax.Array:
        """The result that a state stands for."""
        ...

    def index_range(self, operands: Operands, shape: Sequence[int]) -> jax.Array | None:
        """The least index that is read, the largest, and how many rows there are; None if none."""
        ...

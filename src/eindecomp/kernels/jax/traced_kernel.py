"""The protocol of kernels for JAX, functions that are traced; and arrays seen by their labels.

JAX's arrays cannot be written to, so a kernel here has no output to compute into, as those of
`kernels.library` have. An engine traces them within a program of its own and compiles all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import jax.numpy as jnp

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jax

    from eindecomp.lang.einsum import Labels

    Operands = Sequence[jax.Array | None]
    States = tuple[jax.Array, ...]

_jnp: Any = jnp
"""JAX does not say what the types of some functions are."""


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


# Arrays by their labels


def distinct(x: jax.Array, labels: Labels) -> tuple[jax.Array, Labels]:
    """The diagonal along every label that stands twice, so that each stands once."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = _jnp.diagonal(x, 0, first, second)
            labels = (*(t for k, t in enumerate(labels) if k not in (first, second)), label)
    return x, labels


def without_ones(x: jax.Array, labels: Labels) -> tuple[jax.Array, Labels]:
    """The array without dimensions of size 1, of labels that each stand once.

    With a leading one, XLA's CPU compiler gets sums of products wrong that it takes for a matrix
    product: those of `T[a: 1, b: 64, k: 16] * W[f: 8, k]`, and of quotients, in JAX 0.10.
    """
    ones = tuple(k for k, size in enumerate(x.shape) if size == 1)
    kept = tuple(label for k, label in enumerate(labels) if k not in ones)
    return (jnp.squeeze(x, ones), kept) if ones else (x, labels)


def aligned(x: jax.Array, labels: Labels, space: Labels) -> jax.Array:
    """A dimension for each label of a space, of size 1 where the array has none."""
    order = [labels.index(label) for label in space if label in labels]
    x = x if order == sorted(order) else x.transpose(order)
    lacking = [k for k, label in enumerate(space) if label not in labels]
    return jnp.expand_dims(x, lacking) if lacking else x

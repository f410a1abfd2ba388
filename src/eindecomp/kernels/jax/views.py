"""Arrays seen by their labels: diagonals and alignment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

if TYPE_CHECKING:
    import jax

    from eindecomp.lang.einsum import Labels


_jnp: Any = jnp
"""JAX does not say what the types of some functions are."""


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

"""Tensors that are made from their own indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import lax

from eindecomp.kernels.jax.functions import JAX, cast
from eindecomp.kernels.point_program import scalar_type
from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.dtypes import INT64
from eindecomp.lang.scalar import used_scalars
from eindecomp.lang.scalar_types import result_type, with_casts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import jax

    from eindecomp.graph.ops import Fill
    from eindecomp.lang.dtypes import DType


def filled(
    op: Fill,
    lows: Sequence[Any],
    shape: Sequence[int],
    scalars: Mapping[str, object],
    types: Mapping[str, DType],
) -> jax.Array:
    """A box of the tensor: `shape` indices along each dimension, from `lows`, which may be traced.

    `scalars` and `types` are the values and types of the graph's run-time scalars.
    """
    indices = [INT64] * len(op.output)
    explicit, _ = with_casts(op.value, indices, types)
    names = used_scalars(explicit)
    value = compile_scalar(explicit, len(indices), JAX, names)
    rank = len(shape)
    places = [
        lax.broadcasted_iota(INT64, [n if k == d else 1 for k, n in enumerate(shape)], d)
        for d in range(rank)
    ]
    index = [place + jnp.asarray(low, INT64) for place, low in zip(places, lows, strict=True)]
    given = [jnp.asarray(scalars[name], scalar_type(types[name])) for name in names]
    found = cast(value(*index, *given), result_type(op.value, indices, types))
    return jnp.broadcast_to(found, tuple(shape))

"""Scalar functions as JAX computes them, element by element: `numpy_backend`'s, on traced arrays.

An operand is an array or, where the expression has a literal, a Python number. Functions of numbers
alone are NumPy's; a fill is a function of a tensor's own indices. Nothing here looks at elements,
so that all of it can be traced; hence integers to negative powers are not refused, as NumPy does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from eindecomp.graph.ops import Fill
from eindecomp.kernels import elementwise
from eindecomp.kernels.point_program import fill_function, scalar_type
from eindecomp.lang.compile import with_definitions
from eindecomp.lang.dtypes import (
    INT64,
    LOW_PRECISION,
    DType,
    Kind,
    ScalarTypes,
    ScalarValues,
    dtype,
    kind,
    type_names,
)
from eindecomp.lang.numpy_backend import NUMPY
from eindecomp.lang.numpy_backend import cast as cast_number
from eindecomp.lang.scalar import Number

Function = Callable[..., Any]


def cast(x: jax.Array | Number, to: DType) -> jax.Array:
    """Convert by the rule of `numpy_backend.cast`; a number becomes an array of no dimensions.

    >>> import numpy as np
    >>> cast(jnp.array([-1.5, 300.7, jnp.nan]), np.dtype("uint8")).tolist()
    [0, 255, 0]
    """
    if not isinstance(x, jax.Array):
        with np.errstate(all="ignore"):
            return jnp.asarray(cast_number(x, to))
    if x.dtype == to:
        return x
    if kind(x.dtype) is Kind.COMPLEX and kind(to) not in (Kind.BOOL, Kind.COMPLEX):
        x = lax.real(x)
    if kind(x.dtype) is Kind.FLOAT and kind(to) is Kind.INT:
        return _to_integer(x, to)
    if x.dtype == np.float64 and to in LOW_PRECISION:
        x = _to_odd(x)
    return x != 0 if kind(to) is Kind.BOOL else lax.convert_element_type(x, to)


def _to_integer(x: jax.Array, to: DType) -> jax.Array:
    """Truncated, and the nearest integer where the type's range ends; NaN is 0."""
    x = x.astype(np.float32) if x.dtype in LOW_PRECISION else x
    limits = np.iinfo(to.name)
    low, end = float(limits.min), float(int(limits.max) + 1)
    whole = jnp.trunc(x)
    inside = jnp.where((whole >= low) & (whole < end), whole, 0)
    integers = lax.convert_element_type(inside, to)
    integers = jnp.where(whole >= end, literal(int(limits.max), to), integers)
    return jnp.where(whole < low, literal(int(limits.min), to), integers)


def _to_odd(x: jax.Array) -> jax.Array:
    """A float64 as the float32 that rounds to the same low precision: inexact ones become odd.

    XLA rounds twice on its way, first to float32, which may make a tie of what was none.
    """
    near = x.astype(np.float32)
    back = near.astype(np.float64)
    bits = lax.bitcast_convert_type(near, np.int32)
    below = jnp.where(jnp.abs(back) > jnp.abs(x), bits - 1, bits)
    odd = jnp.where((back == x) | (x != x), bits, below | 1)
    return lax.bitcast_convert_type(odd, np.float32)


def literal(value: Number, of: DType) -> jax.Array:
    """A number of a type, as an array of no dimensions."""
    with np.errstate(all="ignore"):
        return jnp.asarray(np.asarray(value).astype(of))


def _like(value: Number, beside: jax.Array) -> jax.Array:
    return literal(value, beside.dtype)


def _as_arrays(args: Sequence[Any], of: DType) -> list[jax.Array]:
    return [x if isinstance(x, jax.Array) else literal(x, of) for x in args]


def _where(test: Any, x: Any, y: Any) -> jax.Array:
    [test] = _as_arrays([test], np.dtype(bool))
    types = [z.dtype for z in (x, y) if isinstance(z, jax.Array)]
    of: DType = types[0] if types else np.asarray(NUMPY["where"](True, x, y)).dtype
    x, y = _as_arrays([x, y], of)
    return jnp.where(test, x, y)


def _floor_divide(x: jax.Array, y: jax.Array) -> jax.Array:
    if kind(x.dtype) is Kind.FLOAT:
        return elementwise.floor_divide_floats(jnp, x, y, jnp.fmod(x, y))
    quotient = jnp.floor_divide(x, _safe_divisor(y))
    if x.dtype.kind != "u":
        quotient = jnp.where(y == -1, -x, quotient)
    return jnp.where(y == 0, 0, quotient).astype(x.dtype)


def _remainder(x: jax.Array, y: jax.Array) -> jax.Array:
    if kind(x.dtype) is Kind.FLOAT:
        return elementwise.remainder_of_floats(jnp, y, jnp.fmod(x, y))
    safe = _safe_divisor(y)
    return jnp.where(safe == y, jnp.remainder(x, safe), 0).astype(x.dtype)


def _safe_divisor(y: jax.Array) -> jax.Array:
    """1 in place of what would trap: 0, and −1, by which the least number cannot be divided."""
    traps = y == 0 if y.dtype.kind == "u" else (y == 0) | (y == -1)
    return jnp.where(traps, 1, y).astype(y.dtype)


_FUNCTIONS: Mapping[str, Function] = {
    # JAX has NumPy's functions of elements under NumPy's names.
    **{name: getattr(jnp, f.__name__) for name, f in NUMPY.items() if isinstance(f, np.ufunc)},
    "floordiv": _floor_divide,
    "mod": _remainder,
    "pow": partial(elementwise.power, jnp, literal=_like),
    "where": _where,
    "real": jnp.real,
    "imag": jnp.imag,
    "erf": lax.erf,
    "sigmoid": lax.logistic,
    "gelu": partial(jax.nn.gelu, approximate=False),
}
JAX = with_definitions(
    elementwise.on_arrays(_FUNCTIONS, jax.Array, _like, lambda name, _: name in ("where", "pow"))
    | {name: partial(cast, to=dtype(name)) for name in type_names}
)
"""The table for `compile_scalar`; it is for tracing with 64-bit types enabled."""


def filled(
    op: Fill, lows: Sequence[Any], shape: Sequence[int], scalars: ScalarValues, types: ScalarTypes
) -> jax.Array:
    """A box of the tensor: `shape` indices along each dimension, from `lows`, which may be traced.

    `scalars` and `types` are the values and types of the graph's run-time scalars.
    """
    value, names, of = fill_function(op, types, JAX)
    sides = [[n if k == d else 1 for k, n in enumerate(shape)] for d in range(len(shape))]
    places = [lax.broadcasted_iota(INT64, side, d) for d, side in enumerate(sides)]
    index = [place + jnp.asarray(low, INT64) for place, low in zip(places, lows, strict=True)]
    given = [jnp.asarray(scalars[name], scalar_type(types[name])) for name in names]
    return jnp.broadcast_to(cast(value(*index, *given), of), tuple(shape))

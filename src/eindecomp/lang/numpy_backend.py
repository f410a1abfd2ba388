"""Scalar functions as NumPy computes them, element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from eindecomp.lang.compile import with_definitions
from eindecomp.lang.dtypes import Kind, dtype, kind, type_names


def cast(x: Any, to: np.dtype[np.generic]) -> Any:
    """Convert a value, the same on every machine; a literal becomes an array scalar.

    Only zero is false. Complex to real drops the imaginary part. Floats are truncated towards zero
    to integers, the nearest one where a type's range ends, NaN to 0. Integers wrap around.

    >>> cast([-1.5, 300.7, np.nan], np.dtype("uint8"))
    array([  0, 255,   0], dtype=uint8)
    """
    array = np.asarray(x)
    if array.dtype.kind == "c" and to.kind not in "bc":
        array = np.real(array)
    if kind(array.dtype) is Kind.FLOAT and to.kind in "iu":
        return _to_integer(array.astype(np.float64), to)
    return array.astype(to)


def _to_integer(x: Any, to: np.dtype[np.generic]) -> Any:
    # What is out of range when C converts it differs from one processor to the next.
    limits = np.iinfo(to.name)
    low, end = float(limits.min), float(int(limits.max) + 1)
    whole = np.trunc(x)
    choose: Any = np.where
    inside = choose((whole >= low) & (whole < end), whole, 0.0).astype(to)
    over = choose(whole >= end, to.type(limits.max), inside)
    return choose(whole < low, to.type(limits.min), over)


def _power(x: Any, y: Any) -> Any:
    # Where one power serves all elements, NumPy takes a square root for ½, which at −∞ and −0.0 is
    # not IEEE's power that it takes elsewhere.
    if getattr(x, "dtype", np.dtype(int)).kind == "f":
        choose: Any = np.where
        x = choose((y == 0.5) & (np.isinf(x) | (x == 0)), np.abs(x), x)
    return np.power(x, y)


def _special(name: str) -> Callable[[Any], Any]:
    """A function of SciPy's, imported at its first use: that takes longer than all our imports."""

    def function(x: Any) -> Any:
        from scipy import special

        return getattr(special, name)(x)

    return function


_erf, _expit, _normal_cdf = (_special(name) for name in ("erf", "expit", "ndtr"))


def _gelu(x: Any) -> Any:
    return x * _normal_cdf(x)


_ELEMENTARY = ("exp", "log", "sqrt", "sin", "cos", "tanh")
_OWN: Mapping[str, Callable[..., Any]] = {
    "or": np.logical_or,
    "and": np.logical_and,
    "not": np.logical_not,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "neg": np.negative,
    "pow": _power,
    "min": np.minimum,
    "max": np.maximum,
    **{name: getattr(np, name) for name in ("abs", "sign", "where", "real", "imag", "conj")},
    **{name: getattr(np, name) for name in _ELEMENTARY},
    "erf": _erf,
    "sigmoid": _expit,
    "gelu": _gelu,
    **{name: partial(cast, to=dtype(name)) for name in type_names},
}
NUMPY = with_definitions(_OWN)
"""The table for `compile_scalar`."""

"""Scalar functions as NumPy computes them, element by element."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.lang.dtypes import dtype, type_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _cast(x: Any, to: np.dtype[np.generic]) -> Any:
    # A literal becomes an array scalar; float to int truncates, complex to real drops a part, and
    # only zero is false.
    array = np.asarray(x)
    if array.dtype.kind == "c" and to.kind not in "bc":
        array = np.real(array)
    return array.astype(to)


def _relu(x: Any) -> Any:
    return np.maximum(x, np.zeros((), np.asarray(x).dtype))


def _power(x: Any, y: Any) -> Any:
    # Where one power serves all elements, NumPy takes a square root for ½, which at −∞ and −0.0 is
    # not IEEE's power that it takes elsewhere.
    if getattr(x, "dtype", np.dtype(int)).kind == "f":
        choose: Any = np.where
        x = choose((y == 0.5) & (np.isinf(x) | (x == 0)), np.abs(x), x)
    return np.power(x, y)


def _rsqrt(x: Any) -> Any:
    return np.reciprocal(np.sqrt(x))


def _special(name: str) -> Callable[[Any], Any]:
    """A function of SciPy's, whose import takes longer than all of ours and waits for its use."""

    def function(x: Any) -> Any:
        from scipy import special

        return getattr(special, name)(x)

    return function


_erf, _expit, _normal_cdf = (_special(name) for name in ("erf", "expit", "ndtr"))


def _gelu(x: Any) -> Any:
    return x * _normal_cdf(x)


def _silu(x: Any) -> Any:
    return x * _expit(x)


NUMPY: Mapping[str, Callable[..., Any]] = {
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
    "neg": np.negative,
    "pow": _power,
    "abs": np.abs,
    "sign": np.sign,
    "min": np.minimum,
    "max": np.maximum,
    "where": np.where,
    "real": np.real,
    "imag": np.imag,
    "conj": np.conj,
    "relu": _relu,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": _erf,
    "sigmoid": _expit,
    "silu": _silu,
    "gelu": _gelu,
    **{name: partial(_cast, to=dtype(name)) for name in type_names},
}

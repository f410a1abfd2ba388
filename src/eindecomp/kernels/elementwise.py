"""Scalar functions that torch and JAX compute alike; `xp` is `torch` or `jax.numpy`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from eindecomp.lang.numpy_backend import NUMPY

Function = Callable[..., Any]


def on_arrays(
    functions: Mapping[str, Function],
    arrays: type,
    literal: Function,
    takes_numbers: Callable[[str, Any], bool],
) -> dict[str, Function]:
    """Functions whose operands are arrays or Python numbers; of numbers alone they are NumPy's.

    A number becomes an array like the first one by `literal`, unless a function of this name takes
    numbers beside arrays of this type.
    """

    def apply(name: str, *args: Any) -> Any:
        first = next((x for x in args if isinstance(x, arrays)), None)
        if first is None:
            with np.errstate(all="ignore"):
                return np.asarray(NUMPY[name](*args)).item()
        if not takes_numbers(name, first.dtype):
            args = tuple(x if isinstance(x, arrays) else literal(x, first) for x in args)
        return functions[name](*args)

    return {name: partial(apply, name) for name in functions}


def floor_divide_floats(xp: Any, x: Any, y: Any, rest: Any) -> Any:
    """The quotient rounded down as Python does: the remainder is taken off first."""
    exact = (x - rest) / y
    exact = xp.where((rest != 0) & ((y < 0) != (rest < 0)), exact - 1, exact)
    whole = xp.floor(exact)
    whole = xp.where(exact - whole > 0.5, whole + 1, whole)
    whole = xp.where(exact == 0, xp.copysign(xp.zeros_like(exact), x / y), whole)
    return xp.where(y == 0, x / y, whole)


def remainder_of_floats(xp: Any, y: Any, rest: Any) -> Any:
    """What C calls fmod, moved to where it has the divisor's sign."""
    moved = xp.where((rest < 0) != (y < 0), rest + y, rest)
    return xp.where(rest == 0, xp.copysign(rest, y), moved)


def power(xp: Any, x: Any, y: Any, literal: Function) -> Any:
    """A power of arrays, or of an array and a number, of which `literal` makes one like the other.

    Small whole powers are multiplied, the power ½ is IEEE's at −∞ and −0, powers of 0 are NumPy's.
    """
    if isinstance(x, int | float | complex):
        x = literal(x, y)
    is_complex = x.dtype in (xp.complex64, xp.complex128)
    match y:
        case float(0.5) if not is_complex:
            return xp.sqrt(xp.where(xp.isinf(x) | (x == 0), xp.abs(x), x))
        case int(1) | float(1):
            return x
        case int(2) | float(2):
            return x * x
        case int(3) | float(3):
            return x * x * x
        case int(4) | float(4):
            square = x * x
            return square * square
        case _:
            y = literal(y, x) if isinstance(y, int | float | complex) else y
    if not is_complex:
        return xp.pow(x, y)
    zero, one = xp.zeros_like(x), xp.ones_like(x)
    of_zero = xp.where(y == 0, one, xp.where(xp.real(y) > 0, zero, zero * math.nan))
    return xp.where(x == 0, of_zero, xp.pow(xp.where(x == 0, one, x), y))

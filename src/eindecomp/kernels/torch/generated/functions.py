# pyright: basic
"""Scalar functions as generated Triton kernels call them, with the results that NumPy gives.

Only built-in functions of `tl` are used: those of its standard library are made when Triton is
imported, for its compiler or for its interpreter.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def divide(x, y):
    """x / y, rounded once."""
    if x.dtype == tl.float32:
        return tl.div_rn(x, y)
    else:  # noqa: RET505 - Triton compiles one of the branches
        return x / y


@triton.jit
def negative(x):
    """−x, with the sign of zeros turned as well."""
    if x.dtype.is_floating():
        return x * tl.full([], -1.0, x.dtype)
    else:  # noqa: RET505
        return tl.full([], 0, x.dtype) - x


@triton.jit
def maximum(x, y):
    """The larger one, or NaN where one of them is."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(x, y):
    """The smaller one, or NaN where one of them is."""
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def sign(x):
    """1, −1 or 0; NaN stays."""
    zero, one = tl.full([], 0, x.dtype), tl.full([], 1, x.dtype)
    below = tl.where(x < zero, zero - one, x)
    return tl.where(x > zero, one, below)


@triton.jit
def sqrt(x):
    """The square root, rounded once."""
    if x.dtype == tl.float32:
        return tl.sqrt_rn(x)
    else:  # noqa: RET505
        return libdevice.sqrt(x)


@triton.jit
def gelu(x):
    """x Φ(x)."""
    return x * libdevice.normcdf(x)


@triton.jit
def floor_divide_signed(x, y):
    """The quotient of integers rounded down; 0 where the divisor is."""
    zero, one = tl.full([], 0, x.dtype), tl.full([], 1, x.dtype)
    none, flips = y == zero, y == zero - one
    safe = tl.where(none | flips, one, y)
    quotient = x // safe
    rest = x - quotient * safe
    down = (rest != zero) & ((rest < zero) != (safe < zero))
    quotient = tl.where(down, quotient - one, quotient)
    return tl.where(none, zero, tl.where(flips, zero - x, quotient))


@triton.jit
def remainder(x, y, quotient):
    """What a quotient of integers leaves; 0 where the divisor is."""
    zero = tl.full([], 0, x.dtype)
    return tl.where(y == zero, zero, x - quotient * y)


@triton.jit
def floor_divide_unsigned(x, y):
    """The quotient of unsigned integers; 0 where the divisor is."""
    zero, one = tl.full([], 0, x.dtype), tl.full([], 1, x.dtype)
    return tl.where(y == zero, zero, x // tl.where(y == zero, one, y))


@triton.jit
def remainder_float(x, y):
    """What rounding the quotient down leaves, with the divisor's sign; by 0 it is NaN."""
    zero = tl.full([], 0.0, x.dtype)
    rest = libdevice.fmod(x, y)
    turned = tl.where((rest < zero) != (y < zero), rest + y, rest)
    return tl.where(rest == zero, libdevice.copysign(rest, y), turned)


@triton.jit
def floor_divide_float(x, y):
    """The quotient rounded down, step by step as NumPy."""
    zero, one = tl.full([], 0.0, x.dtype), tl.full([], 1.0, x.dtype)
    plain = divide(x, y)
    rest = libdevice.fmod(x, y)
    quotient = divide(x - rest, y)
    below = (rest != zero) & ((rest < zero) != (y < zero))
    exact = tl.where(below, quotient - one, quotient)
    down = tl.floor(exact)
    down = tl.where(exact - down > tl.full([], 0.5, x.dtype), down + one, down)
    signed = tl.where(exact == zero, libdevice.copysign(exact, plain), down)
    return tl.where(y == zero, plain, signed)


@triton.jit
def saturate(x, low: tl.constexpr, high: tl.constexpr, to: tl.constexpr):
    """A float as an integer: cut towards zero, the nearest one beyond the range, 0 for NaN."""
    wide = x.to(tl.float64)
    least = tl.full([], low, tl.float64)
    end = tl.full([], high + 1, tl.float64)
    inside = (wide >= least) & (wide < end)
    integer = tl.where(inside, wide, tl.full([], 0.0, tl.float64)).to(to)
    integer = tl.where(wide >= end, tl.full([], high, to), integer)
    return tl.where(wide < least, tl.full([], low, to), integer)

"""Scalar functions as generated loops call them: NumPy's and SciPy's results, and made so that LLVM
vectorises them where they are straight lines of arithmetic.

They are read by `assemble` and written out where they are called, never run by Python. Compiled
without any relaxation of floating-point rules; polynomials are Cephes's.
"""

from __future__ import annotations

import math
from math import inf, nan
from typing import Any

from eindecomp.kernels.cpu.compiling.intrinsics import (
    bits_of_float,
    choose,
    copysign,
    float_of_bits,
    floor,
    maximum,
    minimum,
    muladd,
    polynomial,
    power_of_c,
    refuse,
    remainder,
    round_half,
    times_power_of_two,
)
from eindecomp.lang.dtypes import dtype

_types: Any = map(dtype, ("float32", "float64", "int32", "complex128"))
_f4, _f8, _i4, _c16 = _types
SHIFT = 1.5 * 2.0**23
"""Around this, float32 numbers are the whole ones."""
# Coefficients, that of the highest power first.
_TANH = (
    -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1,
)  # fmt: skip
_ERF_NEAR = (
    7.853861353153693e-5, -8.010193625184903e-4, 5.188327685732524e-3, -2.685381193529856e-2,
    1.128358514861418e-1, -3.761262582423300e-1, 1.128379165726710,
)  # fmt: skip
_ERFC = (
    2.326819970068386e-2, -1.387039388740657e-1, 3.687424674597105e-1, -5.824733027278666e-1,
    6.210004621745983e-1, -4.944515323274145e-1, 3.404879937665872e-1, -2.741127028184656e-1,
    5.638259427386472e-1,
)  # fmt: skip
_ERFC_FAR = (
    -1.047766399936249e1, 1.297719955372516e1, -7.495518717768503, 2.921019019210786,
    -1.015265279202700, 4.218463358204948e-1, -2.820767439740514e-1, 5.641895067754075e-1,
)  # fmt: skip
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip


def exp_f4(x: Any) -> Any:
    """e^x in float32 to about one unit in the last place, subnormal results among them."""
    # Beyond these every result is 0 or ∞; a NaN stays one.
    t = minimum(maximum(x, _f4(-104.0)), _f4(89.0))
    # Added to a number of this size, a fraction is rounded off; what is left in the last bits is n.
    shifted = muladd(t, _f4(1.44269504088896341), _f4(SHIFT))
    n = shifted - _f4(SHIFT)
    r = muladd(n, _f4(-0.693359375), t)
    r = muladd(n, _f4(2.12194440e-4), r)
    z = r * r
    # In pairs rather than one by one: fewer steps wait for each other.
    high = muladd(r, _f4(1.9875691500e-4), _f4(1.3981999507e-3))
    middle = muladd(r, _f4(8.3334519073e-3), _f4(4.1665795894e-2))
    low = muladd(r, _f4(1.6666665459e-1), _f4(5.0000001201e-1))
    p = muladd(muladd(high, z, middle), z, low)
    p = muladd(p, z, r) + _f4(1.0)
    return times_power_of_two(p, shifted)


def tanh_f4(x: Any) -> Any:
    """The hyperbolic tangent: a polynomial near 0, by e^2x further out."""
    z = x * x
    p = polynomial(z, *_TANH)
    near = muladd(p * z, x, x)
    size = abs(x)
    far = _f4(1.0) - _f4(2.0) / (exp_f4(size + size) + _f4(1.0))
    return choose(size < _f4(0.625), near, copysign(far, x))


def _erf_near_f4(x: Any) -> Any:
    """The error function for |x| < 1."""
    z = x * x
    p = polynomial(z, *_ERF_NEAR)
    return x * p


def _erfc_far_f4(a: Any, square: Any, rest: Any) -> Any:
    """1 − erf(a) for a ≥ 1, given a² as a sum of two numbers."""
    # One number for the square would lose a digit of e^-a² for every factor 10 of a².
    e = exp_f4(-square) * (_f4(1.0) - rest)
    q = _f4(1.0) / a
    y = q * q
    p = polynomial(y, *_ERFC)
    r = polynomial(y, *_ERFC_FAR)
    return e * q * choose(a < _f4(2.0), p, r)


def erf_f4(x: Any) -> Any:
    """The error function: a polynomial near 0, by its complement further out."""
    a = abs(x)
    # Beyond this e^-a² is 0, and the rounding error of an infinite square would be ∞ − ∞.
    far = minimum(a, _f4(12.0))
    square = far * far
    tail = _erfc_far_f4(far, square, muladd(far, far, -square))
    return choose(a < _f4(1.0), _erf_near_f4(x), copysign(_f4(1.0) - tail, x))


def gelu_f8(x: Any) -> Any:
    """x Φ(x)."""
    return x * (0.5 * math.erfc(-x * math.sqrt(0.5)))


def gelu_f4(x: Any) -> Any:
    """x Φ(x), with all digits where Φ(x) is small."""
    a = abs(x)
    far = minimum(a, _f4(16.0))
    square = far * far
    rest = muladd(far, far, -square)
    root = _f4(0.7071067811865476)
    tail = _f4(0.5) * _erfc_far_f4(far * root, _f4(0.5) * square, _f4(0.5) * rest)
    near = muladd(_f4(0.5), _erf_near_f4(x * root), _f4(0.5))
    outer = choose(x < _f4(0.0), tail, _f4(1.0) - tail)
    share = choose(a * root < _f4(1.0), near, outer)
    return x * share


def log_f4(x: Any) -> Any:
    """The natural logarithm in float32."""
    tiny = x < _f4(1.1754943508222875e-38)
    normal = choose(tiny, x * _f4(8388608.0), x)
    bits = bits_of_float(normal)
    # The mantissa between √½ and √2, and the exponent that goes with it.
    shifted = _i4(bits - _i4(0x3F3504F3))
    exponent = _f4(_i4(shifted >> _i4(23)))
    exponent = choose(tiny, exponent - _f4(23.0), exponent)
    m = float_of_bits(_i4(_i4(shifted & _i4(0x7FFFFF)) + _i4(0x3F3504F3))) - _f4(1.0)
    z = m * m
    p = polynomial(m, *_LOG)
    y = p * m * z
    y = muladd(exponent, _f4(-2.12194440e-4), y)
    y = muladd(_f4(-0.5), z, y)
    y = muladd(exponent, _f4(0.693359375), m + y)
    y = choose(x - x != _f4(0.0), x, y)  # ∞ and NaN; −∞ is negative
    y = choose(x == _f4(0.0), _f4(-inf), y)
    return choose(x < _f4(0.0), _f4(nan), y)


def power_int(x: Any, n: Any) -> Any:
    """x to a whole power, wrapping around as the multiplications do; none that is negative."""
    if n < 0:
        refuse()
    result = x * 0 + 1
    while n > 0:
        if n & 1:
            result = result * x
        x = x * x
        n = n >> 1
    return result


def mod_float(x: Any, y: Any) -> Any:
    """What rounding the quotient down leaves, with the divisor's sign; by 0 it is NaN."""
    rest = remainder(x, y)
    moved = rest + y if (rest < 0) != (y < 0) else rest
    return copysign(rest, y) if rest == 0 else moved


def floordiv_float(x: Any, y: Any) -> Any:
    """The quotient rounded down, step by step as NumPy."""
    rest = remainder(x, y)
    quotient = (x - rest) / y
    below = rest != 0 and (rest < 0) != (y < 0)
    exact = _f8(quotient) - 1.0 if below else _f8(quotient)
    down = floor(exact)
    near = down + 1.0 if exact - down > 0.5 else down
    signed = copysign(exact, _f8(x / y)) if exact == 0 else near
    return _f8(x / y) if y == 0 else signed


def divide_complex(x: Any, y: Any) -> Any:
    """x / y by Smith's method, step by step as NumPy."""
    a, b, c, d = x.real, x.imag, y.real, y.imag
    by_real = abs(c) >= abs(d)
    more, less = c if by_real else d, d if by_real else c
    ratio = less / more
    scale = 1.0 / (more + less * ratio)
    real = (a + b * ratio) * scale if by_real else (a * ratio + b) * scale
    imaginary = (b - a * ratio) * scale if by_real else (b * ratio - a) * scale
    none = c == 0 and d == 0
    return complex(a / abs(c) if none else real, b / abs(c) if none else imaginary)


def power_complex(x: Any, y: Any) -> Any:
    """x to a complex power; those of 0, and to the power of 0, are NumPy's."""
    power = _c16(1.0) if y == 0 else power_of_c(_c16(x), _c16(y))
    zero = _c16(x - x) if y.real > 0 else _c16(x * nan)
    return zero if x == 0 and y != 0 else power


def half_of_double(x: Any) -> Any:
    """A float64 rounded to float16 once, as a float32."""
    near = _f4(x)
    # Where float32 cannot hold x, the neighbour of odd mantissa keeps the second rounding true.
    bits = bits_of_float(near)
    if _f8(near) != x and x == x and abs(near) < _f4(1e30) and not bits & 1:
        near = float_of_bits(bits + (_i4(1) if abs(_f8(near)) < abs(x) else _i4(-1)))
    return round_half(near)

"""Scalar functions as generated loops call them: NumPy's and SciPy's results, and made so that LLVM
vectorises them where they are straight lines of arithmetic.

Compiled without any relaxation of floating-point rules; polynomials are Cephes's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types

from eindecomp.kernels.cpu.compiling.intrinsics import (
    SHIFT,
    bits_of_float,
    choose,
    copysign,
    float_of_bits,
    floor,
    maximum,
    minimum,
    muladd,
    remainder,
    round_half,
    times_power_of_two,
)

_f4: Any = types.float32
_f8: Any = types.float64
_i4: Any = types.int32
_inline: Any = njit(error_model="numpy")


@_inline
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


@_inline
def sigmoid_f4(x: Any) -> Any:
    """1 / (1 + e^-x)."""
    e = exp_f4(-abs(x))
    return choose(x >= _f4(0.0), _f4(1.0), e) / (_f4(1.0) + e)


@_inline
def sigmoid_f8(x: Any) -> Any:
    """1 / (1 + e^-x)."""
    e = math.exp(-abs(x))
    return (1.0 if x >= 0.0 else e) / (1.0 + e)


@_inline
def tanh_f4(x: Any) -> Any:
    """The hyperbolic tangent: a polynomial near 0, by e^2x further out."""
    z = x * x
    p = _f4(-5.70498872745e-3)
    p = muladd(p, z, _f4(2.06390887954e-2))
    p = muladd(p, z, _f4(-5.37397155531e-2))
    p = muladd(p, z, _f4(1.33314422036e-1))
    p = muladd(p, z, _f4(-3.33332819422e-1))
    near = muladd(p * z, x, x)
    size = abs(x)
    far = _f4(1.0) - _f4(2.0) / (exp_f4(size + size) + _f4(1.0))
    return choose(size < _f4(0.625), near, copysign(far, x))


@_inline
def _erf_near_f4(x: Any) -> Any:
    """The error function for |x| < 1."""
    z = x * x
    p = _f4(7.853861353153693e-5)
    p = muladd(p, z, _f4(-8.010193625184903e-4))
    p = muladd(p, z, _f4(5.188327685732524e-3))
    p = muladd(p, z, _f4(-2.685381193529856e-2))
    p = muladd(p, z, _f4(1.128358514861418e-1))
    p = muladd(p, z, _f4(-3.761262582423300e-1))
    p = muladd(p, z, _f4(1.128379165726710))
    return x * p


@_inline
def _erfc_far_f4(a: Any, square: Any, rest: Any) -> Any:
    """1 − erf(a) for a ≥ 1, given a² as a sum of two numbers."""
    # One number for the square would lose a digit of e^-a² for every factor 10 of a².
    e = exp_f4(-square) * (_f4(1.0) - rest)
    q = _f4(1.0) / a
    y = q * q
    p = _f4(2.326819970068386e-2)
    p = muladd(p, y, _f4(-1.387039388740657e-1))
    p = muladd(p, y, _f4(3.687424674597105e-1))
    p = muladd(p, y, _f4(-5.824733027278666e-1))
    p = muladd(p, y, _f4(6.210004621745983e-1))
    p = muladd(p, y, _f4(-4.944515323274145e-1))
    p = muladd(p, y, _f4(3.404879937665872e-1))
    p = muladd(p, y, _f4(-2.741127028184656e-1))
    p = muladd(p, y, _f4(5.638259427386472e-1))
    r = _f4(-1.047766399936249e1)
    r = muladd(r, y, _f4(1.297719955372516e1))
    r = muladd(r, y, _f4(-7.495518717768503))
    r = muladd(r, y, _f4(2.921019019210786))
    r = muladd(r, y, _f4(-1.015265279202700))
    r = muladd(r, y, _f4(4.218463358204948e-1))
    r = muladd(r, y, _f4(-2.820767439740514e-1))
    r = muladd(r, y, _f4(5.641895067754075e-1))
    return e * q * choose(a < _f4(2.0), p, r)


@_inline
def erf_f4(x: Any) -> Any:
    """The error function: a polynomial near 0, by its complement further out."""
    a = abs(x)
    # Squares beyond this are 0 or ∞ in e^-a², and ∞ − ∞ in what they are rounded by.
    far = minimum(a, _f4(12.0))
    square = far * far
    tail = _erfc_far_f4(far, square, muladd(far, far, -square))
    return choose(a < _f4(1.0), _erf_near_f4(x), copysign(_f4(1.0) - tail, x))


@_inline
def gelu_f8(x: Any) -> Any:
    """x Φ(x)."""
    return x * (0.5 * math.erfc(-x * math.sqrt(0.5)))


@_inline
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


@_inline
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
    p = _f4(7.0376836292e-2)
    p = muladd(p, m, _f4(-1.1514610310e-1))
    p = muladd(p, m, _f4(1.1676998740e-1))
    p = muladd(p, m, _f4(-1.2420140846e-1))
    p = muladd(p, m, _f4(1.4249322787e-1))
    p = muladd(p, m, _f4(-1.6668057665e-1))
    p = muladd(p, m, _f4(2.0000714765e-1))
    p = muladd(p, m, _f4(-2.4999993993e-1))
    p = muladd(p, m, _f4(3.3333331174e-1))
    y = p * m * z
    y = muladd(exponent, _f4(-2.12194440e-4), y)
    y = muladd(_f4(-0.5), z, y)
    y = muladd(exponent, _f4(0.693359375), m + y)
    y = choose(x - x != _f4(0.0), x, y)  # ∞ and NaN; −∞ is negative
    y = choose(x == _f4(0.0), _f4(-math.inf), y)
    return choose(x < _f4(0.0), _f4(math.nan), y)


@_inline
def power_int(x: Any, n: Any) -> Any:
    """x to a whole power, wrapping around as the multiplications do."""
    if n < 0:
        raise ValueError("Integers to negative integer powers are not allowed.")
    result = x * 0 + 1
    while n > 0:
        if n & 1:
            result = result * x
        x = x * x
        n = n >> 1
    return result


@_inline
def mod_float(x: Any, y: Any) -> Any:
    """What rounding the quotient down leaves, with the divisor's sign; by 0 it is NaN."""
    rest = remainder(x, y)
    if rest == 0:
        return copysign(rest, y)
    return rest + y if (rest < 0) != (y < 0) else rest


@_inline
def floordiv_float(x: Any, y: Any) -> Any:
    """The quotient rounded down, step by step as NumPy."""
    if y == 0:
        return _f8(x / y)
    rest = remainder(x, y)
    quotient = (x - rest) / y
    below = rest != 0 and (rest < 0) != (y < 0)
    exact = _f8(quotient) - 1.0 if below else _f8(quotient)
    if exact == 0:
        return copysign(exact, _f8(x / y))
    down = floor(exact)
    return down + 1.0 if exact - down > 0.5 else down


@_inline
def divide_complex(x: Any, y: Any) -> Any:
    """x / y by Smith's method, step by step as NumPy: numba's own raises an error at y = 0."""
    a, b, c, d = x.real, x.imag, y.real, y.imag
    if abs(c) >= abs(d):
        if c == 0 and d == 0:
            return complex(a / abs(c), b / abs(c))
        ratio = d / c
        scale = np.reciprocal(c + d * ratio)
        return complex((a + b * ratio) * scale, (b - a * ratio) * scale)
    ratio = c / d
    scale = np.reciprocal(d + c * ratio)
    return complex((a * ratio + b) * scale, (b * ratio - a) * scale)


@_inline
def power_complex(x: Any, y: Any) -> Any:
    """x to a complex power; those of 0 are NumPy's."""
    if x == 0 and y != 0:
        return x - x if y.real > 0 else x * math.nan
    return np.power(x, y)


@_inline
def half_of_double(x: Any) -> Any:
    """A float64 rounded to float16 once, as a float32."""
    near = _f4(x)
    # Where float32 cannot hold x, the neighbour of odd mantissa keeps the second rounding true.
    bits = bits_of_float(near)
    if _f8(near) != x and x == x and abs(near) < _f4(1e30) and not bits & 1:
        bits += 1 if (abs(_f8(near)) < abs(x)) else -1
        near = float_of_bits(_i4(bits))
    return round_half(near)

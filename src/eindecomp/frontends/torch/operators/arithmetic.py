"""Arithmetic and elementary functions, element by element."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from eindecomp.frontends.operations.accurate import expm1, log1p
from eindecomp.frontends.torch.operators.written import (
    number,
    register_fractions,
    register_maps,
)
from eindecomp.frontends.torch.registry import common_type, operator
from eindecomp.frontends.views import View
from eindecomp.lang.dtypes import BOOL, Kind, kind

if TYPE_CHECKING:
    from eindecomp.frontends.torch.registry import Number, Operand, Operation

register_fractions(
    {
        **{f: f"{f}(x)" for f in ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf")},
        "sigmoid": "sigmoid(x)",
        "reciprocal": "1 / x",
        "log2": f"log(x) / {log(2)}",
        "log10": f"log(x) / {log(10)}",
        "exp2": "2.0**x",
        "tan": "sin(x) / cos(x)",
        "sinh": "tanh(x) * ((exp(x) + exp(-x)) / 2)",
        "cosh": "(exp(x) + exp(-x)) / 2",
        "expm1": expm1("x"),
        "log1p": log1p("x"),
        "erfc": "1 - erf(x)",
        "special_expit": "sigmoid(x)",
        "rad2deg": "x * 57.29577951308232",
        "deg2rad": "x * 0.017453292519943295",
    }
)
register_maps({"neg": "-x", "abs": "abs(x)", "square": "x * x", "positive": "x"})
register_maps({"sign": "where(x != x, 0, sign(x))"})


@operator("aten.add")
def add(op: Operation, x: Operand, other: Operand, alpha: Number = 1) -> View:
    """The sum."""
    if common_type(x, other) == BOOL:
        return op.map("x or y", x, other)
    return op.map("x + y" if alpha == 1 else f"x + y * {number(alpha)}", x, other)


@operator("aten.sub", "aten.subtract")
def subtract(op: Operation, x: Operand, other: Operand, alpha: Number = 1) -> View:
    """The difference."""
    return op.map("x - y" if alpha == 1 else f"x - y * {number(alpha)}", x, other)


@operator("aten.rsub")
def subtract_from(op: Operation, x: Operand, other: Operand, alpha: Number = 1) -> View:
    """The difference, the other way round."""
    return op.map("y - x" if alpha == 1 else f"y - x * {number(alpha)}", x, other)


@operator("aten.mul", "aten.multiply")
def multiply(op: Operation, x: Operand, other: Operand) -> View:
    """The product."""
    join = "x and y" if common_type(x, other) == BOOL else "x * y"
    return op.map(join, x, other)


@operator("aten.div", "aten.divide", "aten.true_divide")
def divide(op: Operation, x: Operand, other: Operand, rounding_mode: str | None = None) -> View:
    """The quotient, exact or rounded."""
    if rounding_mode == "floor":
        return op.map("x // y", x, other)
    if rounding_mode == "trunc":
        if kind(op.dtype) is Kind.INT:
            size = "abs(x) // abs(y)"
            return op.map(f"where((x < 0) != (y < 0), -({size}), {size})", x, other)
        size, whole = "abs(x / y)", 2**52 if op.dtype.name == "float64" else 2**23
        return op.map(f"sign(x / y) * where({size} < {whole}, {size} // 1, {size})", x, other)
    pair = [op.array(operand, op.dtype) for operand in (x, other)]
    return op.trace.map("x / y", *pair, dtype=op.dtype)


@operator("aten.floor_divide")
def floor_divide(op: Operation, x: Operand, other: Operand) -> View:
    """The quotient rounded down."""
    return op.map("x // y", x, other)


@operator("aten.remainder")
def remainder(op: Operation, x: Operand, other: Operand) -> View:
    """The remainder with the sign of the divisor."""
    return op.map("x % y", x, other)


@operator("aten.fmod")
def fmod(op: Operation, x: Operand, other: Operand) -> View:
    """The remainder with the sign of the dividend."""
    return op.map("where(x < 0, -(abs(x) % abs(y)), abs(x) % abs(y))", x, other)


@operator("aten.pow")
def power(op: Operation, x: Operand, exponent: Operand) -> View:
    """A power; square roots are taken as such."""
    if isinstance(exponent, View) or not isinstance(x, View):
        return op.map("x ** y", x, exponent)
    base = op.array(x, op.dtype)
    if exponent in (0.5, -0.5) and kind(op.dtype) is Kind.FLOAT:
        return op.trace.map("sqrt(x)" if exponent == 0.5 else "rsqrt(x)", base, dtype=op.dtype)
    whole = float(exponent.real).is_integer() if not isinstance(exponent, complex) else False
    shown = number(int(exponent.real)) if whole and abs(exponent) < 2**31 else number(exponent)
    return op.trace.map(f"x ** {shown}", base, dtype=op.dtype)


@operator("aten.lerp")
def interpolate(op: Operation, x: View, end: View, weight: Operand) -> View:
    """A point between two, by the formula that is exact at both ends."""
    return op.map("where(z < 0.5, x + z * (y - x), y - (y - x) * (1 - z))", x, end, weight)


@operator("aten.addcmul")
def add_product(op: Operation, x: View, tensor1: View, tensor2: View, value: Number = 1) -> View:
    """A tensor plus a product."""
    return op.map(f"x + {number(value)} * y * z", x, tensor1, tensor2)


@operator("aten.addcdiv")
def add_quotient(op: Operation, x: View, tensor1: View, tensor2: View, value: Number = 1) -> View:
    """A tensor plus a quotient."""
    return op.map(f"x + {number(value)} * (y / z)", x, tensor1, tensor2)

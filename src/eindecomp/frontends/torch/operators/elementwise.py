"""Functions of elements: arithmetic, comparisons, activations, rounding, complex numbers."""

from __future__ import annotations

from math import log

from eindecomp.frontends.draft import View
from eindecomp.frontends.operations import COMPLEX, EXACT, REST, ROUND_EVEN, UNARY, stacked
from eindecomp.frontends.torch.registry import (
    Number,
    Operand,
    Operation,
    common_type,
    number,
    operator,
)
from eindecomp.lang.dtypes import BOOL, Kind, kind

_MAPS = {
    **EXACT,
    "sign": "where(x != x, 0, sign(x))",
    "relu": "relu(x)",
    "relu6": "min(relu(x), 6)",
    "round": ROUND_EVEN,
    "trunc": f"where(x < 0, {EXACT['ceil']}, {EXACT['floor']})",
    "isnan": "x != x",
    "floor_divide": "x // y",
    "remainder": "x % y",
    "fmod": REST,
    "maximum": "max(x, y)",
    "max": "max(x, y)",
    "minimum": "min(x, y)",
    "min": "min(x, y)",
    "fmax": "where(x != x, y, where(y != y, x, max(x, y)))",
    "fmin": "where(x != x, y, where(y != y, x, min(x, y)))",
    "logical_and": "x and y",
    "logical_or": "x or y",
    "logical_xor": "(x != 0) != (y != 0)",
    "logical_not": "not x",
    "conj_physical": EXACT["conj"],
    "complex": COMPLEX,
    "polar": "x * cos(y) + x * sin(y) * complex(0.0, 1.0)",
}
"""Functions of tensors and numbers of one type, which torch's rules of promotion give them."""
_FRACTIONS = {
    **UNARY,
    "sigmoid": "sigmoid(x)",
    "silu": "silu(x)",
    "reciprocal": "1 / x",
    "log2": f"log(x) / {log(2)}",
    "log10": f"log(x) / {log(10)}",
}
"""Functions of one tensor that yield fractions, of whole numbers too."""
_OF_TRUTH = {"and": "x and y", "or": "x or y", "xor": "x != y", "not": "not x"}


@operator(*(f"aten.{name}" for name in _MAPS), "aten._conj", "aten._conj_physical")
def mapped(op: Operation, **operands: Operand) -> View:
    """A function of tensors and numbers."""
    if "decimals" in operands:
        raise op.refuse("is imported without decimals")
    return op.map(_MAPS[op.short], *operands.values())


@operator(*(f"aten.{name}" for name in _FRACTIONS))
def fraction(op: Operation, x: Operand) -> View:
    """A function that yields fractions."""
    return op.fraction(_FRACTIONS[op.short], x)


@operator(*(f"aten.bitwise_{name}" for name in _OF_TRUTH), "aten.__and__", "aten.__or__")
def of_truth(op: Operation, **operands: Operand) -> View:
    """A function of truth values."""
    if common_type(*operands.values()) != BOOL:
        raise op.refuse("is imported for truth values, not for the bits of whole numbers")
    return op.map(_OF_TRUTH[op.short.removeprefix("bitwise_")], *operands.values())


_ARITHMETIC = {"add": "x + y", "sub": "x - y", "mul": "x * y"}


@operator(*(f"aten.{name}" for name in _ARITHMETIC))
def arithmetic(op: Operation, x: Operand, other: Operand, alpha: Number = 1) -> View:
    """A sum, a difference or a product, of truth values as well."""
    if common_type(x, other) == BOOL:
        return op.map("x and y" if op.short == "mul" else "x or y", x, other)
    join = _ARITHMETIC[op.short]
    return op.map(join if alpha == 1 else f"{join} * {number(alpha)}", x, other)


@operator("aten.div")
def divide(op: Operation, x: Operand, other: Operand, rounding_mode: str | None = None) -> View:
    """The quotient, exact or rounded."""
    if rounding_mode == "floor":
        return op.map("x // y", x, other)
    if rounding_mode == "trunc" and kind(op.dtype) is Kind.INT:
        size = "abs(x) // abs(y)"
        return op.map(f"where((x < 0) != (y < 0), -({size}), {size})", x, other)
    pair = [op.array(operand, op.dtype) for operand in (x, other)]
    quotient = op.trace.map("x / y", *pair, dtype=op.dtype)
    return quotient if rounding_mode is None else op.map(_MAPS["trunc"], quotient)


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


@operator("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(op: Operation, condition: View, x: Operand, other: Operand) -> View:
    """One or the other."""
    pair = [op.array(operand, op.dtype) for operand in (x, other)]
    return op.trace.map("where(x, y, z)", condition, *pair, dtype=op.dtype)


@operator("aten.masked_fill")
def masked_fill(op: Operation, x: View, mask: View, value: Operand) -> View:
    """A value where a mask holds."""
    return where(op, mask, value, x)


@operator("aten.clamp")
def clamp(op: Operation, x: View, min_: Operand | None = None, max_: Operand | None = None) -> View:
    """Kept within limits."""
    kept = op.trace.cast(x, op.dtype)
    for join, limit in (("max(x, y)", min_), ("min(x, y)", max_)):
        if limit is not None:
            kept = op.trace.map(join, kept, op.array(limit, op.dtype))
    return kept


@operator("aten.gelu")
def gelu(op: Operation, x: View, approximate: str = "none") -> View:
    """x times the normal distribution at x, or the usual approximation of it."""
    if approximate == "none":
        return op.fraction("gelu(x)", x)
    return op.fraction("0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))", x)


@operator("aten.dropout", "aten.alpha_dropout", "aten.feature_dropout", "aten.native_dropout")
def dropout(op: Operation, x: View, p: float, train: bool) -> View:
    """Nothing, unless a module is trained."""
    if train and p:
        raise op.refuse(
            "draws random numbers, which a graph does not; set dropout to 0, or put the module in "
            "evaluation mode: module.eval()"
        )
    return x


@operator("aten.view_as_complex", "aten.view_as_complex_copy")
def as_complex(op: Operation, x: View) -> View:
    """Numbers of pairs along the last dimension."""
    pair = [op.trace.index(x, len(x.dims) - 1, part) for part in (0, 1)]
    return op.trace.map(COMPLEX, *pair, dtype=op.dtype)


@operator("aten.view_as_real", "aten.view_as_real_copy")
def as_real(op: Operation, x: View) -> View:
    """Both parts of numbers along a new last dimension."""
    parts = [op.trace.map(f"{part}(x)", x, dtype=op.dtype) for part in ("real", "imag")]
    return stacked(op.trace, parts, len(x.dims))

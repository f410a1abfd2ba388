"""Functions of elements, in the words of the scalar language."""

from __future__ import annotations

from math import inf, log

from eindecomp.frontends.draft import View
from eindecomp.frontends.jax.registry import Equation, primitive
from eindecomp.frontends.operations import COMPLEX, EXACT, REST, ROUND_EVEN, UNARY, log1p
from eindecomp.lang.dtypes import Kind, kind
from eindecomp.lang.scalar import Arg, Expr, call

_LARGER_TRUTH = "(y != y and x == x)"
_FORMULAS = {
    **UNARY,
    **EXACT,
    "add": "x + y",
    "add_any": "x + y",
    "sub": "x - y",
    "mul": "x * y",
    "pow": "x ** y",
    "shift_left": "x * 2 ** y",
    "sign": "sign(x)",
    "cbrt": "sign(x) * abs(x) ** (1 / 3)",
    "asinh": (
        f"sign(x) * where(abs(x) > 1e9, log(abs(x)) + {log(2)!r}, "
        f"{log1p('abs(x) + x * x / (1 + sqrt(x * x + 1))')})"
    ),
    "acosh": f"where(x > 1e9, log(x) + {log(2)!r}, log(x + sqrt(x - 1) * sqrt(x + 1)))",
    "atanh": f"({log1p('2 * x / (1 - x)')}) / 2",
    "logistic": "sigmoid(x)",
    "is_finite": f"abs(x) < {inf}",
    "clamp": "min(max(y, x), z)",
    "complex": COMPLEX,
    # The total order: not a number is the largest, and -0.0 less than 0.0.
    "eq_to": "(x == y and (x != 0 or 1 / x == 1 / y)) or (x != x and y != y)",
    "lt_to": f"x < y or {_LARGER_TRUTH} or (x == 0 and y == 0 and 1 / x < 1 / y)",
    "le_to": "x < y or y != y or (x == y and (x != 0 or 1 / x <= 1 / y))",
}


@primitive(*_FORMULAS, elementwise=True)
def _formula(op: Equation, *arrays: View) -> View:
    return op.map(_FORMULAS[op.name], *arrays)


def _is(array: View, of: Kind) -> bool:
    return kind(array.dtype) is of


def _is_unsigned(array: View) -> bool:
    return array.dtype.kind == "u"


@primitive("max", "min", elementwise=True)
def _extreme(op: Equation, x: View, y: View) -> View:
    """The larger or smaller one; softmax takes the maximum of -∞ and a maximum, which is that."""
    neutral = -inf if op.name == "max" else inf
    for array, other in ((x, y), (y, x)):
        if array.number == neutral and other.shape == op.shape:
            return other
    return op.map(f"{op.name}(x, y)", x, y)


_INEXACT = "(x < 0) != (y < 0) and x % y != 0"
"""Whether rounding a quotient towards zero rounds it up."""


def _all_bits(x: View) -> int:
    """The integer whose bits are all set."""
    return 2 ** (8 * x.dtype.itemsize) - 1 if _is_unsigned(x) else -1


@primitive("div", elementwise=True)
def _div(op: Equation, x: View, y: View) -> View:
    if not _is(x, Kind.INT):
        return op.map("x / y", x, y)
    quotient = "x // y"
    if not _is_unsigned(x):  # towards zero, as C divides; the least integer has no abs
        quotient = f"where({_INEXACT}, x // y + 1, x // y)"
    if y.number is not None and y.number != 0:
        return op.map(quotient, x, y)
    all_bits = op.trace.number(_all_bits(x), x.dtype)  # what XLA has for a division by zero
    return op.map(f"where(y == 0, z, {quotient})", x, y, all_bits)


@primitive("rem", elementwise=True)
def _rem(op: Equation, x: View, y: View) -> View:
    if not _is(x, Kind.INT):
        return op.map(REST, x, y)
    rest = "x % y" if _is_unsigned(x) else f"where({_INEXACT}, x % y - y, x % y)"
    by_zero = y.number is None or y.number == 0
    return op.map(f"where(y == 0, x, {rest})" if by_zero else rest, x, y)


@primitive("integer_pow", elementwise=True)
def _integer_pow(op: Equation, x: View) -> View:
    power = int(op.params["y"])
    join = call("pow", Arg(0), abs(power))
    return op.map(join if power >= 0 else call("div", 1, join), x)


@primitive("round", elementwise=True)
def _round(op: Equation, x: View) -> View:
    if int(op.params["rounding_method"]) == 1:
        return op.map(ROUND_EVEN, x)
    size = op.trace.map("abs(x)", x)
    whole = op.trace.map(EXACT["floor"], size)
    return op.map("sign(z) * where(x - y >= 0.5, y + 1, y)", size, whole, x)


@primitive("and", "or", "xor", elementwise=True)
def _logical(op: Equation, x: View, y: View) -> View:
    if not _is(x, Kind.BOOL):
        op.refuse(f"bits of integers cannot be expressed, only truth values; it has {x.dtype}")
    return op.map("x != y" if op.name == "xor" else f"x {op.name} y", x, y)


@primitive("not", elementwise=True)
def _not(op: Equation, x: View) -> View:
    if _is(x, Kind.BOOL):
        return op.map("not x", x)
    return op.map("y - x", x, op.trace.number(_all_bits(x), x.dtype))


@primitive("shift_right_arithmetic", "shift_right_logical", elementwise=True)
def _shift_right(op: Equation, x: View, y: View) -> View:
    if _is_unsigned(x) != (op.name == "shift_right_logical"):
        op.refuse(f"what becomes of the sign bit cannot be expressed for {x.dtype}")
    if _is_unsigned(x):
        return op.map("x // 2 ** y", x, y)
    # The largest power of two of a signed type; by more bits, only the sign is left.
    most = 8 * x.dtype.itemsize - 2
    shifted = f"x // 2 ** min(max(y, 0), {most})"
    return op.map(f"where(y >= 0 and y <= {most}, {shifted}, where(x < 0, -1, 0))", x, y)


@primitive("select_n", elementwise=True)
def _select_n(op: Equation, which: View, *cases: View) -> View:
    if which.number is not None:
        return op.trace.expand(cases[int(which.number.real)], op.shape)
    if _is(which, Kind.BOOL):
        return op.map("where(x, y, z)", which, cases[1], cases[0])
    return op.map(case_at(len(cases)), which, *cases)


def case_at(count: int) -> Expr:
    """The join of an index and so many cases: the first case whose number it does not exceed."""
    join: Expr = Arg(count)
    for k in reversed(range(count - 1)):
        join = call("where", call("le", Arg(0), k), Arg(k + 1), join)
    return join


@primitive("convert_element_type", elementwise=True)
def _convert(op: Equation, x: View) -> View:
    return op.trace.cast(x, op.dtype)


_ROUNDED = {(8, 7): "bfloat16", (5, 10): "float16", (8, 23): "float32", (11, 52): "float64"}


@primitive("reduce_precision", elementwise=True)
def _reduce_precision(op: Equation, x: View) -> View:
    bits = (int(op.params["exponent_bits"]), int(op.params["mantissa_bits"]))
    if bits not in _ROUNDED:
        op.refuse(f"no type has {bits[0]} bits of exponent and {bits[1]} of mantissa")
    return op.trace.cast(op.trace.cast(x, _ROUNDED[bits]), op.dtype)


@primitive(
    "atan2", "atan", "asin", "acos", "erf_inv", "nextafter", "population_count", "clz",
    elementwise=True,
)  # fmt: skip
def _refused(op: Equation, *_: View) -> View:
    op.refuse("the scalar functions of a join cannot express it")

"""Numbers, conversions and functions as the source of generated Triton kernels spells them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eindecomp.kernels.scalar_lines import Dialect, NamedValue
from eindecomp.lang.dtypes import BOOL, LOW_PRECISION, DType, Kind, kind, widen
from eindecomp.lang.scalar import Number

POINT = "1, 1"
"""The shape of what does not vary within a tile: without one, Triton's interpreter confuses the
types of comparisons."""


class Unsuited(Exception):  # noqa: N818 - not an error: something else computes it
    """Something that no kernel here computes."""


def type_text(of: DType) -> str:
    """A type in Triton's terms."""
    return "tl.int1" if of == BOOL else f"tl.{of.name}"


def literal(number: Number | np.generic, of: DType, shape: str = POINT) -> str:
    """A tile of a number, as a constant of a type."""
    value: Any = np.real(number)
    match kind(of):
        case Kind.BOOL:
            text = str(bool(number))
        case Kind.INT:
            text = str(int(value))
        case Kind.COMPLEX:
            raise Unsuited("a complex number")
        case Kind.FLOAT:
            text = repr(float(value)) if math.isfinite(value) else f'float("{float(value)}")'
    return f"tl.full([{shape}], {text}, {type_text(widen(of))})"


def cast_text(value: NamedValue, to: DType) -> str:
    """The conversion of a value to a type, as `numpy_backend.cast` does it."""
    name, of = value.name, value.type
    if kind(to) is Kind.COMPLEX:
        raise Unsuited("a complex number")
    if to == BOOL:
        return f"{name} != {literal(0, of)}"
    if to in LOW_PRECISION:
        exact = "tl.float32" if to.name == "bfloat16" or of == BOOL else "tl.float64"
        via = "" if kind(of) is Kind.FLOAT and to.name == "float16" else f".to({exact})"
        return f"{name}{via}.to({type_text(to)}).to(tl.float32)"
    if kind(of) is Kind.FLOAT and kind(to) is Kind.INT:
        limits = np.iinfo(to.name)
        return f"saturate({name}, {limits.min}, {limits.max}, {type_text(to)})"
    return f"{name}.to({type_text(to)})"


_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
_NAMES = {
    "div": "divide", "neg": "negative", "max": "maximum", "min": "minimum", "where": "tl.where",
    **{op: f"libdevice.{op}" for op in ("exp", "log", "sin", "cos", "tanh", "erf", "pow")},
}  # fmt: skip


def call_text(op: str, names: list[str], of: DType) -> str:
    """A function applied to named operands of one type."""
    x, y = names[0], names[-1]
    if of == BOOL and op in ("max", "min"):
        return f"{x} {'|' if op == 'max' else '&'} {y}"
    if of == BOOL and op in ("lt", "le", "gt", "ge"):
        # A truth value of one bit would compare as −1.
        return f"{x}.to(tl.int32) {_INFIX[op]} {y}.to(tl.int32)"
    if op in _INFIX:
        return f"{x} {_INFIX[op]} {y}"
    if op in ("real", "conj") or (op == "abs" and of.kind in "bu"):
        return x
    match op:
        case "pow" if of.kind in "iu":
            # It may be negative, which a kernel on a device cannot refuse.
            raise Unsuited("an integer to a power that is not a literal")
        case "not":
            return f"~{x}"
        case "imag":
            return literal(0, of)
        case "abs":
            return f"tl.abs({x})"
        case "floordiv" | "mod":
            sort = {"f": "float", "i": "signed", "u": "unsigned"}[of.kind]
            if op == "mod" and sort == "float":
                return f"remainder_float({x}, {y})"
            quotient = f"floor_divide_{sort}({x}, {y})"
            return quotient if op == "floordiv" else f"remainder({x}, {y}, {quotient})"
        case _:
            return f"{_NAMES.get(op, op)}({', '.join(names)})"


TRITON = Dialect(literal, cast_text, call_text)
"""The dialect of generated Triton kernels."""

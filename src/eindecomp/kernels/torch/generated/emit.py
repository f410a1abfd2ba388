"""Scalar expressions as lines of generated Triton kernels, each value in its exact type.

Only numbers, positions and names of this module's making reach the lines; what a user named stays
behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eindecomp.kernels.point_program import UNSIGNED, WIDE
from eindecomp.lang.dtypes import BOOL, LOW_PRECISION, DType, Kind, dtype, kind, widen
from eindecomp.lang.scalar import (
    FUNCTIONS,
    Arg,
    Call,
    Const,
    Expr,
    Number,
    ResultKind,
    Scalar,
    Tuple,
)
from eindecomp.lang.scalar_types import kind_of_number

_MAX_SIGNED = 2**63 - 1
POINT = "1, 1"
"""The shape of what does not vary within a tile: without one, Triton's interpreter confuses the
types of comparisons."""


@dataclass(frozen=True, slots=True)
class NamedValue:
    """The name of a computed value and its type; a weak one only lends its kind."""

    name: str
    type: DType
    weak: bool = False


class Unsuited(Exception):  # noqa: N818 - not an error: something else computes it
    """Something that no kernel here computes."""


@dataclass(slots=True)
class ScalarLines:
    """Lines of one block, in which equal expressions are computed once."""

    prefix: str
    args: Callable[[int], NamedValue]
    scalars: Mapping[str, NamedValue] = field(default_factory=dict[str, NamedValue])
    lines: list[str] = field(default_factory=list[str])
    _known: dict[Expr | tuple[str, DType], NamedValue] = field(
        default_factory=dict["Expr | tuple[str, DType]", NamedValue]
    )

    def value(self, expr: Expr) -> NamedValue:
        """Compute an expression whose conversions are explicit (`with_casts`)."""
        found = self._known.get(expr)
        if found is None:
            found = self._known[expr] = self._make(expr)
        return found

    def cast(self, value: NamedValue, to: DType) -> NamedValue:
        """Convert a value; a low-precision type rounds and stays in float32."""
        if value.type == to:
            return NamedValue(value.name, to)
        key = (value.name, to)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._name(cast_text(value, to), widen(to))
        return found

    def _name(self, text: str, of: DType, weak: bool = False) -> NamedValue:
        name = f"{self.prefix}{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return NamedValue(name, of, weak)

    def _make(self, expr: Expr) -> NamedValue:
        match expr:
            case Arg(index):
                return self.args(index)
            case Scalar(name):
                return self.scalars[name]
            case Const(number):
                of = _literal_type(number)
                return NamedValue(literal(number, of), of, True)
            case Tuple():
                raise AssertionError("tuples are taken apart by the caller")
            case Call(op, args) if FUNCTIONS[op].result is ResultKind.CAST:
                return self.cast(self.value(args[0]), dtype(op))
            case Call("where", (condition, first, second)):
                test = self.value(condition)
                left, right = self._meet((first, second))
                text = f"tl.where({test.name}, {left.name}, {right.name})"
                return self._name(text, left.type, left.weak and right.weak)
            case Call("pow", (base, Const(number))) if (
                number >= 0 if isinstance(number, int) else number in (1.0, 2.0, 3.0, 4.0)
            ):
                return self._whole_power(self.value(base), int(number.real))
            case Call(op, args):
                operands = self._meet(args)
                of = operands[0].type
                text = call_text(op, [operand.name for operand in operands], of)
                if FUNCTIONS[op].result is ResultKind.TRUTH:
                    return self._name(text, BOOL)
                return self._name(text, of, all(operand.weak for operand in operands))

    def _meet(self, args: tuple[Expr, ...]) -> list[NamedValue]:
        """Compute operands in one type: that of those which are not literals."""
        found = [self.value(arg) for arg in args]
        strong = [value.type for value in found if not value.weak]
        to = strong[0] if strong else WIDE[max(kind(value.type) for value in found)]
        return [
            NamedValue(literal(arg.value, to), to, value.weak)
            if isinstance(arg, Const)
            else NamedValue(self.cast(value, to).name, to, value.weak)
            for arg, value in zip(args, found, strict=True)
        ]

    def _whole_power(self, base: NamedValue, number: int) -> NamedValue:
        """Squares and products, as exact as calling a library, and fast."""
        result: NamedValue | None = None
        while True:
            if number & 1:
                result = base if result is None else self._times(result, base)
            number >>= 1
            if not number:
                one = literal(1, base.type)
                return result or NamedValue(one, base.type, base.weak)
            base = self._times(base, base)

    def _times(self, x: NamedValue, y: NamedValue) -> NamedValue:
        return self._name(f"{x.name} * {y.name}", x.type, x.weak)


def _literal_type(number: Number) -> DType:
    if isinstance(number, complex):
        raise Unsuited("a complex number")
    if isinstance(number, int) and number > _MAX_SIGNED:
        return UNSIGNED
    return WIDE[kind_of_number(number)]


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
        case _:
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
_ORDERS = {"lt", "le", "gt", "ge"}
_NAMES = {
    "div": "divide", "neg": "negative", "max": "maximum", "min": "minimum",
    **{op: f"libdevice.{op}" for op in ("exp", "log", "sin", "cos", "tanh", "erf", "pow")},
}  # fmt: skip
_PLAIN_OF_REALS = {"real", "conj"}


def call_text(op: str, names: list[str], of: DType) -> str:
    """A function applied to named operands of one type."""
    x, y = names[0], names[-1]
    if of == BOOL and op in ("max", "min"):
        return f"{x} {'|' if op == 'max' else '&'} {y}"
    if of == BOOL and op in _ORDERS:
        # A truth value of one bit would compare as −1.
        return f"{x}.to(tl.int32) {_INFIX[op]} {y}.to(tl.int32)"
    if op in _INFIX:
        return f"{x} {_INFIX[op]} {y}"
    if op in _PLAIN_OF_REALS or (op == "abs" and of.kind in "bu"):
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
            name = "floor_divide" if op == "floordiv" else "remainder"
            sort = {"f": "float", "i": "signed", "u": "unsigned"}[of.kind]
            return f"{name}_{sort}({x}, {y})"
        case _:
            return f"{_NAMES.get(op, op)}({', '.join(names)})"

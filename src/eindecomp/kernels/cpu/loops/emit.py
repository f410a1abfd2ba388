"""Scalar expressions as lines of the generated loops, each value in its exact type.

Only numbers, positions and names of this module's making reach the lines; what a user named stays
behind. Every operation is followed by the conversion to its type: literals take that of what they
meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from eindecomp.kernels.cpu.compiling.compile import caster, suffix
from eindecomp.kernels.point_program import UNSIGNED, WIDE
from eindecomp.lang.dtypes import LOW_PRECISION, DType, Kind, concrete, dtype, kind, to_real, widen
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

BOOL, FLOAT32, FLOAT64 = dtype("bool"), dtype("float32"), dtype("float64")
_MAX_SIGNED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class NamedValue:
    """The name of a computed value and its type; a weak one only lends its kind."""

    name: str
    type: DType
    weak: bool = False


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
                of = WIDE[kind_of_number(number)]
                if isinstance(number, int) and number > _MAX_SIGNED:
                    of = UNSIGNED
                return self._name(literal(number, of), of, True)
            case Tuple():
                raise AssertionError("tuples are taken apart by the caller")
            case Call(op, args) if FUNCTIONS[op].result is ResultKind.CAST:
                return self.cast(self.value(args[0]), dtype(op))
            case Call("where", (condition, first, second)):
                test = self.value(condition)
                left, right = self._meet((first, second))
                text = f"choose({test.name}, {left.name}, {right.name})"
                return self._name(text, left.type, left.weak and right.weak)
            case Call(op, args):
                return self._call(op, args)

    def _call(self, op: str, args: tuple[Expr, ...]) -> NamedValue:
        match op, args:
            case "pow", (base, Const(number)):
                operand = self.value(base)
                short = _short_power(operand, number)
                if short is not None:
                    return self._name(short, operand.type, operand.weak)
            case _:
                pass
        operands = self._meet(args)
        of = operands[0].type
        names = [operand.name for operand in operands]
        weak = all(operand.weak for operand in operands)
        match FUNCTIONS[op].result:
            case ResultKind.TRUTH:
                result, weak = BOOL, False
            case ResultKind.REAL:
                result = concrete(to_real(of))
            case _:
                result = of
        return self._name(call_text(op, names, of, result), result, weak)

    def _meet(self, args: tuple[Expr, ...]) -> list[NamedValue]:
        """Compute operands in one type: that of those which are not literals."""
        found = [self.value(arg) for arg in args]
        strong = [value.type for value in found if not value.weak]
        to = strong[0] if strong else WIDE[max(kind(value.type) for value in found)]
        return [
            self._name(literal(arg.value, to), to, value.weak)
            if isinstance(arg, Const) and value.type != to
            else NamedValue(self.cast(value, to).name, to, value.weak)
            for arg, value in zip(args, found, strict=True)
        ]


def literal(number: Number | np.generic, of: DType) -> str:
    """A number as a constant of a type."""
    if kind(of) is Kind.BOOL:
        return "to_b1(1)" if number else "to_b1(0)"
    if kind(of) is Kind.COMPLEX:
        value = complex(number)
        return f"{caster(of)}(complex({value.real!r}, {value.imag!r}))"
    if kind(of) is Kind.INT:
        return f"{caster(of)}({int(np.real(number))})"
    return f"{caster(widen(of))}({float(np.real(number))!r})"


def cast_text(value: NamedValue, to: DType) -> str:
    """The conversion of a value to a type, as `numpy_backend.cast` does it."""
    name, of = value.name, value.type
    if to == BOOL:
        return name if of == BOOL else f"{name} != 0"
    if kind(of) is Kind.COMPLEX and kind(to) is not Kind.COMPLEX:
        name, of = f"{name}.real", concrete(to_real(of))
    if to in LOW_PRECISION:
        if to.name == "bfloat16":
            return f"round_bfloat(to_f4({name}))"
        exact = of == FLOAT32 or kind(of) is Kind.BOOL
        return f"round_half(to_f4({name}))" if exact else f"half_of_double(to_f8({name}))"
    return f"{caster(to)}({name})"


_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_PATTERNS = {"or": "{x} | {y}", "and": "{x} & {y}", "not": "not {x}", "neg": "{to}(-{x})"} | {
    op: f"{{x}} {sign} {{y}}" for op, sign in _COMPARE.items()
}
# Functions of ours, by the width of the float; the rest come from `math`.
_OWN = {"sigmoid", "gelu", "silu"}
_OWN_F4 = {"exp", "log", "tanh", "erf"}


def call_text(op: str, names: list[str], of: DType, result: DType) -> str:
    """A function applied to named operands of one type, as a value of the type `result`."""
    x, y = names[0], names[-1]
    to = caster(result)
    if op == "div" and of.kind == "c":
        return f"{to}(divide_complex({x}, {y}))"
    if op in _INFIX:
        return f"{to}({x} {_INFIX[op]} {y})"
    if op in _PATTERNS:
        return _PATTERNS[op].format(x=x, y=y, to=to)
    match op:
        case "pow":
            power = {"c": "power_complex", "f": "math.pow"}.get(of.kind, "power_int")
            return f"{to}({power}({x}, {y}))"
        case "floordiv" | "mod":
            return _quotient_text(op, x, y, of)
        case "min" | "max" | "relu":
            return _extreme_text(op, x, y, of)
        case "sign":
            return _sign_text(x, of)
        case "abs":
            return x if of.kind in "bu" else f"{to}(abs({x}))"
        case "real":
            return f"{x}.real" if of.kind == "c" else x
        case "imag":
            return f"{x}.imag" if of.kind == "c" else literal(0, of)
        case "conj":
            return f"{x}.conjugate()" if of.kind == "c" else x
        case _:
            return _function_text(op, x, of)


def _function_text(op: str, x: str, of: DType) -> str:
    to = caster(of)
    if of.kind == "c":
        # In complex128, since near the unit circle a logarithm keeps few digits of its operand.
        return f"{to}(np.{op}(to_c16({x})))"
    if op == "rsqrt":
        return f"{to}({to}(1) / {to}(math.sqrt({x})))"
    if op == "silu":
        return f"{to}({x} * sigmoid_{suffix(of)}({x}))"
    if op in _OWN or (op in _OWN_F4 and of == FLOAT32):
        return f"{op}_{suffix(of)}({x})"
    return f"{to}(math.{op}({x}))"


def _sign_text(x: str, of: DType) -> str:
    to, one = caster(of), literal(1, of)
    if of.kind == "u":
        return f"choose({x} > 0, {one}, {x})"
    rest = f"choose({x} < 0, {to}(-1), choose({x} == 0, {to}(0), {x}))"
    return f"choose({x} > 0, {one}, {rest})"


def _extreme_text(op: str, x: str, y: str, of: DType) -> str:
    if op == "relu":
        op, y = "max", literal(0, of)
    if of == BOOL:
        return f"{x} {'|' if op == 'max' else '&'} {y}"
    if of.kind == "f":
        return f"{'maximum' if op == 'max' else 'minimum'}({x}, {y})"
    return f"choose({x} {'>=' if op == 'max' else '<='} {y}, {x}, {y})"


def _quotient_text(op: str, x: str, y: str, of: DType) -> str:
    to = caster(of)
    if of.kind == "f":
        return f"{to}({op}_float({x}, {y}))"
    # By 0 it is 0, as in NumPy; the least number by −1 would be a trap of the processor's.
    zero, one = literal(0, of), literal(1, of)
    trap = f"{y} == {zero}" if of.kind == "u" else f"({y} == {zero}) | ({y} == {to}(-1))"
    safe = f"choose({trap}, {one}, {y})"
    if op == "mod":
        return f"choose({trap}, {zero}, {to}({x} % {safe}))"
    found = f"{to}({x} // {safe})"
    if of.kind == "i":
        found = f"choose({y} == {to}(-1), {to}(-{x}), {found})"
    return f"choose({y} == {zero}, {zero}, {found})"


def _short_power(base: NamedValue, number: Number) -> str | None:
    """Small whole powers by multiplication, which is as exact as calling a library, and fast."""
    if isinstance(number, complex) or number not in (1, 2, 3, 4) or base.type == BOOL:
        return None
    if isinstance(number, float) and kind(base.type) < Kind.FLOAT:
        return None
    return f"{caster(base.type)}({' * '.join([base.name] * int(number))})"

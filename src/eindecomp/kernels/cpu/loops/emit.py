"""Numbers, conversions and functions as the source of generated loops spells them.

Every operation is followed by the conversion to its type.
"""

from __future__ import annotations

import numpy as np

from eindecomp.kernels.cpu.compiling.compile import caster, suffix
from eindecomp.kernels.scalar_lines import Dialect, NamedValue
from eindecomp.lang.dtypes import (
    BOOL,
    FLOAT32,
    LOW_PRECISION,
    DType,
    Kind,
    concrete,
    kind,
    to_real,
    widen,
)
from eindecomp.lang.scalar import Number


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


_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_PATTERNS = {
    "or": "{0} | {1}",
    "and": "{0} & {1}",
    "not": "not {0}",
    "where": "choose({0}, {1}, {2})",
    "sign": "choose({0} > 0, {to}(1), choose({0} < 0, {to}(-1), choose({0} == 0, {to}(0), {0})))",
    "neg": "{to}(-{0})",
    "add": "{to}({0} + {1})",
    "sub": "{to}({0} - {1})",
    "mul": "{to}({0} * {1})",
    "div": "{to}({0} / {1})",
    **{op: f"{{0}} {sign} {{1}}" for op, sign in _COMPARE.items()},
}
# Functions of ours for float32; the rest come from `math`.
_OWN_F4 = {"exp", "log", "tanh", "erf"}


def call_text(op: str, names: list[str], of: DType) -> str:
    """A function applied to named operands of one type."""
    x, y = names[0], names[-1]
    to = caster(of)
    if op == "div" and of.kind == "c":
        return f"{to}(divide_complex({x}, {y}))"
    if op in _PATTERNS:
        return _PATTERNS[op].format(*names, to=to)
    match op:
        case "pow":
            power = {"c": "power_complex", "f": "math.pow"}.get(of.kind, "power_int")
            return f"{to}({power}({x}, {y}))"
        case "floordiv" | "mod":
            return _quotient_text(op, x, y, of)
        case "min" | "max":
            return _extreme_text(op, x, y, of)
        case "abs":
            return x if of.kind in "bu" else f"{caster(concrete(to_real(of)))}(abs({x}))"
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
    if op == "gelu" or (op in _OWN_F4 and of == FLOAT32):
        return f"{op}_{suffix(of)}({x})"
    return f"{to}(math.{op}({x}))"


def _extreme_text(op: str, x: str, y: str, of: DType) -> str:
    if of == BOOL:
        return f"{x} {'|' if op == 'max' else '&'} {y}"
    if of.kind == "f":
        return f"{'maximum' if op == 'max' else 'minimum'}({x}, {y})"
    return f"choose({x} {'>=' if op == 'max' else '<='} {y}, {x}, {y})"


def _quotient_text(op: str, x: str, y: str, of: DType) -> str:
    to = caster(of)
    if of.kind == "f":
        return f"{to}({op}_float({x}, {y}))"
    # Divided by 0 it is 0, as in NumPy; the least number divided by −1 would trap the processor.
    zero, one = literal(0, of), literal(1, of)
    trap = f"{y} == {zero}" if of.kind == "u" else f"({y} == {zero}) | ({y} == {to}(-1))"
    safe = f"choose({trap}, {one}, {y})"
    if op == "mod":
        return f"choose({trap}, {zero}, {to}({x} % {safe}))"
    quotient = f"{to}({x} // {safe})"
    if of.kind == "i":
        quotient = f"choose({y} == {to}(-1), {to}(-{x}), {quotient})"
    return f"choose({y} == {zero}, {zero}, {quotient})"


LOOPS = Dialect(literal, cast_text, call_text)
"""The dialect of generated loops."""

"""Scalar expressions as lines of generated source, each value in its exact type.

Only numbers, positions and names made here reach the lines; what a user named stays behind. A
literal takes the type of what it meets. A function that others define is written out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from eindecomp.kernels.point_program import UNSIGNED, WIDE
from eindecomp.lang.dtypes import BOOL, DType, concrete, dtype, kind, to_real, widen
from eindecomp.lang.scalar import (
    DEFINITIONS,
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


@dataclass(frozen=True, slots=True)
class NamedValue:
    """The name of a computed value and its type; a weak one only lends its kind."""

    name: str
    type: DType
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one kind of generated source spells numbers, conversions and functions."""

    literal: Callable[[Number | np.generic, DType], str]
    """A number as a constant of a type."""
    cast: Callable[[NamedValue, DType], str]
    """The conversion of a value to a type, by the rule of `numpy_backend.cast`."""
    call: Callable[[str, list[str], DType], str]
    """A function of named operands, which have one type, but for the condition of `where`."""


@dataclass(slots=True)
class ScalarLines:
    """Lines of one block, in which equal expressions are computed once."""

    dialect: Dialect
    prefix: str
    args: Callable[[int], NamedValue]
    scalars: Mapping[str, NamedValue] = field(default_factory=dict[str, NamedValue])
    lines: list[str] = field(default_factory=list[str])
    _known: dict[Expr | tuple[str, DType], NamedValue] = field(
        default_factory=dict["Expr | tuple[str, DType]", NamedValue]
    )

    def value(self, expr: Expr) -> NamedValue:
        """Compute an expression whose conversions are explicit (`with_casts`)."""
        value = self._known.get(expr)
        if value is None:
            value = self._known[expr] = self._make(expr)
        return value

    def cast(self, value: NamedValue, to: DType) -> NamedValue:
        """Convert a value; a low-precision type rounds and stays in float32."""
        if value.type == to:
            return NamedValue(value.name, to)
        key = (value.name, to)
        converted = self._known.get(key)
        if converted is None:
            converted = self._name(self.dialect.cast(value, to), widen(to))
            self._known[key] = converted
        return converted

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
                is_large = isinstance(number, int) and number > _MAX_SIGNED
                of = UNSIGNED if is_large else WIDE[kind_of_number(number)]
                return NamedValue(self.dialect.literal(number, of), of, True)
            case Tuple():
                raise AssertionError("tuples are taken apart by the caller")
            case Call(op, args) if FUNCTIONS[op].result is ResultKind.CAST:
                return self.cast(self.value(args[0]), dtype(op))
            case Call("where", (condition, first, second)):
                test = self.value(condition)
                return self._called("where", self._meet((first, second)), [test.name])
            case Call("pow", (base, Const(int() | float() as number))) if self._is_few_products(
                base, number
            ):
                return self._whole_power(self.value(base), int(number))
            case Call(op, args):
                operands = self._meet(args)
                if op not in DEFINITIONS:
                    return self._called(op, operands)
                written_out = replace(self, args=operands.__getitem__, _known={})
                return written_out.value(DEFINITIONS[op])

    def _meet(self, args: tuple[Expr, ...]) -> list[NamedValue]:
        """Compute operands in one type: that of the operands other than literals."""
        values = [self.value(arg) for arg in args]
        strong = [value.type for value in values if not value.weak]
        to = strong[0] if strong else WIDE[max(kind(value.type) for value in values)]
        return [
            NamedValue(self.dialect.literal(arg.value, to), to, value.weak)
            if isinstance(arg, Const)
            else NamedValue(self.cast(value, to).name, to, value.weak)
            for arg, value in zip(args, values, strict=True)
        ]

    def _called(
        self, op: str, operands: list[NamedValue], condition: list[str] | None = None
    ) -> NamedValue:
        of = operands[0].type
        names = [*(condition or []), *(operand.name for operand in operands)]
        text = self.dialect.call(op, names, of)
        weak = all(operand.weak for operand in operands)
        match FUNCTIONS[op].result:
            case ResultKind.TRUTH:
                return self._name(text, BOOL)
            case ResultKind.REAL:
                return self._name(text, concrete(to_real(of)), weak)
            case _:
                return self._name(text, of, weak)

    def _is_few_products(self, base: Expr, number: float) -> bool:
        """Whether products are as exact a power as a library's: small ones, or of integers."""
        of = self.value(base).type
        if of.kind in "iu":
            return isinstance(number, int) and number >= 0
        return of.kind in "fc" and number in (1, 2, 3, 4)

    def _whole_power(self, base: NamedValue, number: int) -> NamedValue:
        """A power by squares and products, which is faster than calling a library."""
        power: NamedValue | None = None
        while True:
            if number & 1:
                power = base if power is None else self._called("mul", [power, base])
            number >>= 1
            if not number:
                one = self.dialect.literal(1, base.type)
                return power or NamedValue(one, base.type, base.weak)
            base = self._called("mul", [base, base])

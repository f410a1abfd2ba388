"""Comparisons, truth values and choices, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from eindecomp.frontends.torch.operators.written import number
from eindecomp.frontends.torch.registry import common_type, operator, torch_type
from eindecomp.lang.dtypes import BOOL, Kind, kind

if TYPE_CHECKING:
    from eindecomp.frontends.torch.registry import Number, Operand, Operation
    from eindecomp.frontends.views import View


def _register_comparisons() -> None:
    signs = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    for name, sign in signs.items():

        def imported(op: Operation, x: Operand, other: Operand, sign: str = sign) -> View:
            return op.map(f"x {sign} y", x, other)

        operator(f"aten.{name}")(imported)


_register_comparisons()


@operator("aten.logical_and")
def logical_and(op: Operation, x: View, other: View) -> View:
    """Whether both are not zero."""
    return op.trace.map("x and y", x, other)


@operator("aten.logical_or")
def logical_or(op: Operation, x: View, other: View) -> View:
    """Whether one is not zero."""
    return op.trace.map("x or y", x, other)


@operator("aten.logical_xor")
def logical_xor(op: Operation, x: View, other: View) -> View:
    """Whether just one is not zero."""
    return op.trace.map("(x != 0) != (y != 0)", x, other)


@operator("aten.logical_not")
def logical_not(op: Operation, x: View) -> View:
    """Whether it is zero."""
    return op.trace.map("not x", x)


def _of_truth(op: Operation, join: str, *operands: Operand) -> View:
    if common_type(*operands) != BOOL:
        raise op.refuse("is imported for truth values, not for the bits of whole numbers")
    return op.map(join, *operands)


@operator("aten.bitwise_and", "aten.__and__")
def bitwise_and(op: Operation, x: Operand, other: Operand) -> View:
    """Both."""
    return _of_truth(op, "x and y", x, other)


@operator("aten.bitwise_or", "aten.__or__")
def bitwise_or(op: Operation, x: Operand, other: Operand) -> View:
    """One or both."""
    return _of_truth(op, "x or y", x, other)


@operator("aten.bitwise_xor", "aten.__xor__")
def bitwise_xor(op: Operation, x: Operand, other: Operand) -> View:
    """Just one."""
    return _of_truth(op, "x != y", x, other)


@operator("aten.bitwise_not")
def bitwise_not(op: Operation, x: Operand) -> View:
    """The opposite."""
    return _of_truth(op, "not x", x)


@operator("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf")
def where(op: Operation, condition: View, x: Operand, other: Operand) -> View:
    """One or the other."""
    return op.trace.map("where(x, y, z)", condition, *op.promoted(x, other), dtype=op.dtype)


@operator("aten.where.Scalar")
def where_numbers(op: Operation, condition: View, x: Number, other: Number) -> View:
    """One number or the other."""
    pair = [op.array(operand, op.dtype) for operand in (x, other)]
    return op.trace.map("where(x, y, z)", condition, *pair, dtype=op.dtype)


@operator("aten.masked_fill")
def masked_fill(op: Operation, x: View, mask: View, value: Operand) -> View:
    """A value where a mask holds."""
    return op.trace.map("where(x, y, z)", mask, op.array(value, op.dtype), x, dtype=op.dtype)


@operator("aten.maximum", "aten.max.other")
def maximum(op: Operation, x: View, other: Operand) -> View:
    """The larger one; NaN if one is NaN."""
    return op.map("max(x, y)", x, other)


@operator("aten.minimum", "aten.min.other")
def minimum(op: Operation, x: View, other: Operand) -> View:
    """The smaller one; NaN if one is NaN."""
    return op.map("min(x, y)", x, other)


@operator("aten.fmax")
def fmax(op: Operation, x: View, other: View) -> View:
    """The larger one that is a number."""
    return op.map("where(x != x, y, where(y != y, x, max(x, y)))", x, other)


@operator("aten.fmin")
def fmin(op: Operation, x: View, other: View) -> View:
    """The smaller one that is a number."""
    return op.map("where(x != x, y, where(y != y, x, min(x, y)))", x, other)


@operator("aten.clamp")
def clamp(op: Operation, x: View, min_: Operand | None = None, max_: Operand | None = None) -> View:
    """Kept within limits."""
    found = op.trace.cast(x, op.dtype)
    if min_ is not None:
        found = op.trace.map("max(x, y)", found, op.array(min_, op.dtype))
    if max_ is not None:
        found = op.trace.map("min(x, y)", found, op.array(max_, op.dtype))
    return found


@operator("aten.clamp_min")
def clamp_min(op: Operation, x: View, min_: Operand) -> View:
    """Kept above a limit."""
    return clamp(op, x, min_)


@operator("aten.clamp_max")
def clamp_max(op: Operation, x: View, max_: Operand) -> View:
    """Kept below a limit."""
    return clamp(op, x, None, max_)


def _of_fractions(op: Operation, x: View, join: str, otherwise: bool) -> View:
    if kind(x.dtype) < Kind.FLOAT:
        return op.trace.number(otherwise, BOOL, op.shape)
    return op.trace.map(join, x)


@operator("aten.isnan")
def isnan(op: Operation, x: View) -> View:
    """Whether it is not a number."""
    return _of_fractions(op, x, "x != x", False)


@operator("aten.isinf")
def isinf(op: Operation, x: View) -> View:
    """Whether it is infinite."""
    return _of_fractions(op, x, "abs(x) == inf", False)


@operator("aten.isfinite")
def isfinite(op: Operation, x: View) -> View:
    """Whether it is a finite number."""
    return _of_fractions(op, x, "abs(x) < inf", True)


@operator("aten.nan_to_num")
def nan_to_num(
    op: Operation,
    x: View,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> View:
    """Finite numbers in the place of others."""
    if kind(x.dtype) < Kind.FLOAT:
        return x
    most = torch.finfo(torch_type(x.dtype)).max
    high, low = (most if posinf is None else posinf), (-most if neginf is None else neginf)
    finite = f"where(x == inf, {number(high)}, where(x == -inf, {number(low)}, x))"
    return op.map(f"where(x != x, {number(nan or 0.0)}, {finite})", x)

"""Rounding to whole numbers. Large floats, infinities and NaN are left as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.frontends.torch.registry import operator
from eindecomp.lang.dtypes import Kind, kind

if TYPE_CHECKING:
    from eindecomp.frontends.torch.registry import Operation
    from eindecomp.frontends.views import View

_WHOLE = {"float16": 2**10, "bfloat16": 2**7, "float32": 2**23, "float64": 2**52}
"""From where on all numbers of a type are whole."""


def _rounded(op: Operation, x: View, join: str) -> View:
    if kind(x.dtype) < Kind.FLOAT:
        return x
    return op.trace.map(f"where(abs(x) < {_WHOLE[x.dtype.name]}, {join}, x)", x, dtype=op.dtype)


@operator("aten.floor")
def floor(op: Operation, x: View) -> View:
    """Down."""
    return _rounded(op, x, "x // 1")


@operator("aten.ceil")
def ceil(op: Operation, x: View) -> View:
    """Up."""
    return _rounded(op, x, "-(-x // 1)")


@operator("aten.trunc", "aten.fix")
def trunc(op: Operation, x: View) -> View:
    """Towards zero."""
    return _rounded(op, x, "where(x < 0, -(-x // 1), x // 1)")


@operator("aten.frac")
def frac(op: Operation, x: View) -> View:
    """What is left of a number without its whole part."""
    return op.trace.map("x", op.trace.map("x - y", x, trunc(op, x)), dtype=op.dtype)


@operator("aten.round.default")
def nearest(op: Operation, x: View) -> View:
    """To the nearest, and to the even one of two as near."""
    up = "(x - x // 1 > 0.5 or (x - x // 1 == 0.5 and (x // 1) % 2 == 1))"
    return _rounded(op, x, f"where({up}, x // 1 + 1, x // 1)")

"""Aggregations over dimensions, and the first place of the largest."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from eindecomp.frontends.jax.registry import Equation, primitive
from eindecomp.frontends.operations.orders import first_largest
from eindecomp.lang.dtypes import Kind, kind

if TYPE_CHECKING:
    from eindecomp.frontends.views import View

_AGGREGATIONS = {
    "reduce_sum": "sum",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "prod",
    "reduce_and": "all",
    "reduce_or": "any",
}


def _reduced(agg: str, op: Equation, x: View) -> View:
    axes = [int(axis) for axis in op.params["axes"]]
    if agg in ("any", "all") and kind(x.dtype) is not Kind.BOOL:
        op.refuse(f"bits of integers cannot be expressed, only truth values; it has {x.dtype}")
    if not axes:
        return x
    return op.trace.reduce(x, axes, agg, dtype=op.dtype)


for _name, _agg in _AGGREGATIONS.items():
    primitive(_name)(partial(_reduced, _agg))


@primitive("reduce_xor")
def _reduce_xor(op: Equation, x: View) -> View:
    if kind(x.dtype) is not Kind.BOOL:
        op.refuse("bits of integers cannot be expressed")
    axes = [int(axis) for axis in op.params["axes"]]
    count = op.trace.reduce(op.trace.cast(x, "int32"), axes, "sum")
    return op.map("x % 2 == 1", count)


@primitive("argmax")
def _argmax(op: Equation, x: View) -> View:
    return _first(op, x, "first_max")


@primitive("argmin")
def _argmin(op: Equation, x: View) -> View:
    return _first(op, x, "first_min")


def _first(op: Equation, x: View, monoid: Literal["first_max", "first_min"]) -> View:
    """The place of the largest or smallest element, the first of equal ones."""
    (axis,) = (int(each) for each in op.params["axes"])
    return op.trace.cast(first_largest(op.trace, x, axis, monoid), op.dtype)

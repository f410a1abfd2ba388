"""Aggregations over dimensions, running ones, and orders along a dimension."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from eindecomp.frontends.jax.registry import Equation, primitive
from eindecomp.frontends.operations import at_rank, first_in_order, first_largest, ranks, running
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
    "reduce_xor": "xor",
}
_RUNNING = {"cumsum": "sum", "cumprod": "prod", "cummax": "max", "cummin": "min"}


@primitive(*_AGGREGATIONS)
def _reduced(op: Equation, x: View) -> View:
    agg = _AGGREGATIONS[op.name]
    axes = [int(axis) for axis in op.params["axes"]]
    if agg in ("any", "all", "xor") and kind(x.dtype) is not Kind.BOOL:
        op.refuse(f"bits of integers cannot be expressed, only truth values; it has {x.dtype}")
    if agg == "xor":
        count = op.trace.reduce(op.trace.cast(x, "int32"), axes, "sum")
        return op.map("x % 2 == 1", count)
    return op.trace.reduce(x, axes, agg, dtype=op.dtype) if axes else x


@primitive(*_RUNNING)
def _cumulated(op: Equation, x: View) -> View:
    axis, backwards = int(op.params["axis"]), bool(op.params["reverse"])
    made = running(op.trace, x, axis, _RUNNING[op.name], backwards=backwards)
    return op.trace.cast(made, op.dtype)


@primitive("argmax", "argmin")
def _first(op: Equation, x: View) -> View:
    monoid = "first_max" if op.name == "argmax" else "first_min"
    (axis,) = (int(each) for each in op.params["axes"])
    return op.trace.cast(first_largest(op.trace, x, axis, monoid), op.dtype)


@primitive("cumlogsumexp")
def _cumlogsumexp(op: Equation, x: View) -> View:
    axis, backwards = int(op.params["axis"]), bool(op.params["reverse"])
    largest = running(op.trace, x, axis, "max", backwards=backwards)
    shift = op.trace.map(f"where(abs(x) < {inf}, x, 0)", largest)
    total = running(op.trace, x, axis, "sum", backwards=backwards, join="exp(x - x4)", here=[shift])
    return op.map("log(x) + y", total, shift)


@primitive("sort")
def _sort(op: Equation, *arrays: View) -> list[View]:
    axis, keys = int(op.params["dimension"]), int(op.params["num_keys"])
    rank = ranks(op.trace, arrays[:keys], axis, largest=False)
    return [at_rank(op.trace, array, rank, axis, array.shape[axis]) for array in arrays]


@primitive("top_k", "approx_top_k")
def _top_k(op: Equation, x: View) -> list[View]:
    if op.name == "approx_top_k" and not op.params["is_max_k"]:
        op.refuse("only the largest are, not the smallest")
    axis = int(op.params.get("axis", op.params.get("reduction_dimension", -1))) % len(x.dims)
    most, places = first_in_order(op.trace, x, axis, int(op.params["k"]), largest=True)
    return [most, op.trace.cast(places, op.results[1].dtype)]

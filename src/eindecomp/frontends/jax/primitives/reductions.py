"""Aggregations over dimensions, and the first place of the largest."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Literal

from eindecomp.frontends.formulas import neutral
from eindecomp.frontends.jax.registry import Equation, primitive
from eindecomp.frontends.join import Read
from eindecomp.frontends.operations.orders import at_rank, first_largest, ranks
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


_RUNNING = {"cumsum": "sum", "cumprod": "prod", "cummax": "max", "cummin": "min"}


def _running(name: str, op: Equation, x: View) -> View:
    return op.trace.cast(_aggregated(op, x, "x", _RUNNING[name]), op.dtype)


def _aggregated(op: Equation, x: View, join: str, agg: str, *more: View) -> View:
    """All elements up to each, of a function of them and of other arrays at the place of each."""
    axis, rank = int(op.params["axis"]), len(x.dims)
    before = "z >= x3" if op.params["reverse"] else "z <= x3"
    size = x.shape[axis]
    here = tuple(rank if k == axis else k for k in range(rank))
    number = op.trace.number(neutral(agg, x.dtype), x.dtype)
    reads = [
        Read(x, tuple(range(rank))),
        Read(number, ()),
        Read(op.trace.iota(size, "int64"), (axis,)),
        Read(op.trace.iota(size, "int64"), (rank,)),
        *(Read(other, here) for other in more),
    ]
    return op.trace.einsum(reads, here, f"where({before}, {join}, y)", agg)


for _name in _RUNNING:
    primitive(_name)(partial(_running, _name))


@primitive("cumlogsumexp")
def _cumlogsumexp(op: Equation, x: View) -> View:
    largest = _aggregated(op, x, "x", "max")
    shift = op.trace.map(f"where(abs(x) < {inf}, x, 0)", largest)
    total = _aggregated(op, x, "exp(x - x4)", "sum", shift)
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
    count = int(op.params["k"])
    rank = ranks(op.trace, [x], axis, largest=True)
    places = op.trace.iota(x.shape[axis], "int64")
    found = at_rank(op.trace, places, rank, axis, count)
    return [at_rank(op.trace, x, rank, axis, count), op.trace.cast(found, op.results[1].dtype)]

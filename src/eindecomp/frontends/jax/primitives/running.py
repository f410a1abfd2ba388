"""Running aggregations, and orders: sums of all elements before each, ranks, sorting, the largest.

They cost the size of the dimension squared, and can be cut along either side of it.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from eindecomp.frontends.jax.registry import Equation, primitive
from eindecomp.frontends.join import Read
from eindecomp.frontends.numbers import neutral
from eindecomp.frontends.operations.orders import at_rank, ranks

if TYPE_CHECKING:
    from eindecomp.frontends.views import View

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

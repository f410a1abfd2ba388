"""Aggregations over dimensions, running ones, and orders along a dimension."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from eindecomp.frontends.operations import first_in_order, first_largest, running
from eindecomp.frontends.torch.registry import number, operator
from eindecomp.lang.dtypes import Kind, kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.torch.registry import Number, Operation
    from eindecomp.frontends.views import View


def places(x: View, dim: int | Sequence[int] | None) -> list[int]:
    """The dimensions that are meant: all, if none are named."""
    if not x.dims:
        return []
    given = [dim] if isinstance(dim, int) else dim
    return [d % len(x.dims) for d in given or range(len(x.dims))]


@operator(
    "aten.sum", "aten.prod", "aten.any", "aten.all", "aten.amax", "aten.amin", "aten.max.default",
    "aten.min.default",
)  # fmt: skip
def aggregated(op: Operation, x: View, dim: Any = None, keepdim: bool = False, **_: Any) -> View:
    """An aggregate over dimensions."""
    agg = {"amax": "max", "amin": "min"}.get(op.short, op.short)
    given = op.trace.cast(x, op.dtype)
    return op.trace.reduce(given, places(x, dim), agg, keep=keepdim, dtype=op.dtype)


@operator("aten.argmax", "aten.argmin")
def place_of_first(op: Operation, x: View, dim: int | None = None, keepdim: bool = False) -> View:
    """Where the first largest or smallest element is."""
    if dim is None:
        flat = op.trace.reshape(x, (prod(x.shape),))
        return op.trace.reshape(place_of_first(op, flat, 0), op.shape)
    if not x.dims:
        return op.trace.number(0, "int64")
    monoid = "first_max" if "max" in op.short else "first_min"
    found = first_largest(op.trace, x, dim % len(x.dims), monoid)
    return op.trace.unsqueeze(found, dim % len(x.dims)) if keepdim else found


@operator("aten.max.dim", "aten.min.dim")
def extreme_with_place(op: Operation, x: View, dim: int, keepdim: bool = False) -> list[View]:
    """The largest or smallest, and where the first of them is."""
    most = op.trace.reduce(x, places(x, dim), op.short, keep=keepdim)
    return [most, place_of_first(op, x, dim, keepdim)]


@operator("aten.cumsum", "aten.cumprod")
def cumulated(op: Operation, x: View, dim: int, **_: Any) -> View:
    """Sums or products with all before."""
    given = op.trace.cast(x, op.dtype)
    if not x.dims:
        return given
    made = running(op.trace, given, dim % len(x.dims), op.short.removeprefix("cum"))
    return op.trace.cast(made, op.dtype)


def mean_of(op: Operation, x: View, at: Sequence[int], keep: bool) -> View:
    """A mean, summed up in float32 if x is of low precision."""
    count = prod(x.shape[k] for k in at)
    if not count:
        return op.trace.map("x + nan", op.trace.reduce(op.wide(x), at, "sum", keep=keep))
    return op.trace.reduce(op.wide(x), at, "sum", join=f"x / {count}", keep=keep)


def variance_of(
    op: Operation, x: View, at: Sequence[int], keep: bool, correction: Number = 0
) -> tuple[View, View]:
    """The variance, and the mean with its dimensions kept."""
    wide = op.wide(x)
    mean = mean_of(op, wide, at, True)
    apart = op.trace.map("x - y", wide, mean)
    count = max(prod(x.shape[k] for k in at) - float(correction.real), 0.0)
    found = op.trace.reduce(apart, at, "sum", join=f"x * x / {number(count)}", keep=keep)
    return (found if prod(x.shape) else op.trace.map("x + nan", found)), mean


@operator("aten.mean")
def mean(op: Operation, x: View, dim: Any = None, keepdim: bool = False, **_: Any) -> View:
    """The mean."""
    given = x if kind(x.dtype) >= Kind.FLOAT else op.trace.cast(x, op.dtype)
    return op.trace.cast(mean_of(op, given, places(x, dim), keepdim), op.dtype)


@operator("aten.var", "aten.var_mean")
def variance(
    op: Operation,
    x: View,
    dim: Any = None,
    unbiased: bool = True,
    correction: Number | None = None,
    keepdim: bool = False,
) -> View | list[View]:
    """The variance, and the mean if it is asked for."""
    by = int(unbiased) if correction is None else correction
    found = op.trace.cast(variance_of(op, x, places(x, dim), keepdim, by)[0], op.dtype)
    return found if len(op.results) == 1 else [found, mean(op, x, dim, keepdim)]


def _sorted(op: Operation, x: View, dim: int, count: int, largest: bool) -> list[View]:
    if not x.dims:
        return [x, op.trace.number(0, "int64")]
    return first_in_order(op.trace, x, dim % len(x.dims), count, largest=largest)


@operator("aten.sort")
def sort(op: Operation, x: View, dim: int = -1, descending: bool = False, **_: Any) -> list[View]:
    """All elements in order, and where they were."""
    return _sorted(op, x, dim, x.shape[dim] if x.dims else 1, descending)


@operator("aten.topk")
def topk(
    op: Operation, x: View, k: int, dim: int = -1, largest: bool = True, **_: Any
) -> list[View]:
    """The largest or smallest elements, and where they were."""
    return _sorted(op, x, dim, k, largest)

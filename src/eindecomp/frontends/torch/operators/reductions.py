"""Sums, means and other aggregations over dimensions."""

from __future__ import annotations

from math import inf, prod
from typing import TYPE_CHECKING, Any, Literal

from eindecomp.frontends.join import Read
from eindecomp.frontends.operations.orders import first_largest
from eindecomp.frontends.torch.operators.written import number
from eindecomp.frontends.torch.registry import operator
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
    by = f"/ {number(float(count))}" if count else "/ 0.0"
    found = op.trace.reduce(apart, at, "sum", join=f"x * x {by}", keep=keep)
    return (found if prod(x.shape) else op.trace.map("x + nan", found)), mean


@operator("aten.sum")
def total(op: Operation, x: View, dim: Any = None, keepdim: bool = False, **_: Any) -> View:
    """The sum."""
    given = op.trace.cast(x, op.dtype)
    return op.trace.reduce(given, places(x, dim), "sum", keep=keepdim, dtype=op.dtype)


@operator("aten.mean")
def mean(op: Operation, x: View, dim: Any = None, keepdim: bool = False, **_: Any) -> View:
    """The mean."""
    given = x if kind(x.dtype) >= Kind.FLOAT else op.trace.cast(x, op.dtype)
    return op.trace.cast(mean_of(op, given, places(x, dim), keepdim), op.dtype)


@operator("aten.prod")
def product(op: Operation, x: View, dim: Any = None, keepdim: bool = False, **_: Any) -> View:
    """The product."""
    given = op.trace.cast(x, op.dtype)
    return op.trace.reduce(given, places(x, dim), "prod", keep=keepdim, dtype=op.dtype)


@operator("aten.amax", "aten.max.default")
def amax(op: Operation, x: View, dim: Any = None, keepdim: bool = False) -> View:
    """The largest."""
    return op.trace.reduce(x, places(x, dim), "max", keep=keepdim)


@operator("aten.amin", "aten.min.default")
def amin(op: Operation, x: View, dim: Any = None, keepdim: bool = False) -> View:
    """The smallest."""
    return op.trace.reduce(x, places(x, dim), "min", keep=keepdim)


@operator("aten.any")
def any_(op: Operation, x: View, dim: Any = None, keepdim: bool = False) -> View:
    """Whether one is not zero."""
    return op.trace.reduce(x, places(x, dim), "any", keep=keepdim, dtype=op.dtype)


@operator("aten.all")
def all_(op: Operation, x: View, dim: Any = None, keepdim: bool = False) -> View:
    """Whether none is zero."""
    return op.trace.reduce(x, places(x, dim), "all", keep=keepdim, dtype=op.dtype)


@operator("aten.count_nonzero")
def count_nonzero(op: Operation, x: View, dim: Any = None) -> View:
    """How many are not zero."""
    return op.trace.reduce(x, places(x, dim), "sum", join="int64(x != 0)")


def _first(
    op: Operation, x: View, dim: int | None, keep: bool, which: Literal["first_max", "first_min"]
) -> View:
    """Where the first largest or smallest element is."""
    if dim is None:
        x, dim, shape = op.trace.reshape(x, (prod(x.shape),)), 0, op.shape
        return op.trace.reshape(_first(op, x, dim, keep, which), shape)
    if not x.dims:
        return op.trace.number(0, "int64")
    place = dim % len(x.dims)
    found = first_largest(op.trace, x, place, which)
    return op.trace.unsqueeze(found, place) if keep else found


@operator("aten.argmax")
def argmax(op: Operation, x: View, dim: int | None = None, keepdim: bool = False) -> View:
    """Where the first largest element is."""
    return _first(op, x, dim, keepdim, "first_max")


@operator("aten.argmin")
def argmin(op: Operation, x: View, dim: int | None = None, keepdim: bool = False) -> View:
    """Where the first smallest element is."""
    return _first(op, x, dim, keepdim, "first_min")


@operator("aten.max.dim")
def max_dim(op: Operation, x: View, dim: int, keepdim: bool = False) -> list[View]:
    """The largest, and where the first of them is."""
    return [amax(op, x, dim, keepdim), _first(op, x, dim, keepdim, "first_max")]


@operator("aten.min.dim")
def min_dim(op: Operation, x: View, dim: int, keepdim: bool = False) -> list[View]:
    """The smallest, and where the first of them is."""
    return [amin(op, x, dim, keepdim), _first(op, x, dim, keepdim, "first_min")]


@operator("aten.var", "aten.var.correction")
def variance(
    op: Operation,
    x: View,
    dim: Any = None,
    unbiased: bool = True,
    correction: Number | None = None,
    keepdim: bool = False,
) -> View:
    """The variance."""
    by = int(unbiased) if correction is None else correction
    return op.trace.cast(variance_of(op, x, places(x, dim), keepdim, by)[0], op.dtype)


@operator("aten.std", "aten.std.correction")
def deviation(
    op: Operation,
    x: View,
    dim: Any = None,
    unbiased: bool = True,
    correction: Number | None = None,
    keepdim: bool = False,
) -> View:
    """The standard deviation."""
    by = int(unbiased) if correction is None else correction
    found = variance_of(op, x, places(x, dim), keepdim, by)[0]
    return op.trace.map("sqrt(x)", found, dtype=op.dtype)


@operator("aten.var_mean")
def variance_and_mean(
    op: Operation,
    x: View,
    dim: Any = None,
    unbiased: bool = True,
    correction: Number | None = None,
    keepdim: bool = False,
) -> list[View]:
    """The variance, and the mean."""
    return [
        variance(op, x, dim, unbiased, correction, keepdim),
        mean(op, x, dim, keepdim),
    ]


@operator("aten.linalg_vector_norm", "aten.norm")
def norm(
    op: Operation,
    x: View,
    ord_: Number | None = 2,
    p: Number | None = None,
    dim: Any = None,
    keepdim: bool = False,
    **_: Any,
) -> View:
    """The length of vectors."""
    by = float(abs(p if p is not None else 2 if ord_ is None else ord_))
    at, wide = places(x, dim), op.wide(x)
    if by in (inf, 0.0):
        join, agg = ("abs(x)", "max") if by else ("where(x != 0, 1.0, 0.0)", "sum")
        return op.trace.reduce(wide, at, agg, join=join, keep=keepdim, dtype=op.dtype)
    if by == 1:
        return op.trace.reduce(wide, at, "sum", join="abs(x)", keep=keepdim, dtype=op.dtype)
    power = "x * x" if by == 2 else f"abs(x) ** {number(by)}"
    found = op.trace.reduce(wide, at, "sum", join=power, keep=keepdim)
    root = "sqrt(x)" if by == 2 else f"x ** {number(1 / by)}"
    return op.trace.map(root, found, dtype=op.dtype)


@operator("aten.logsumexp")
def logsumexp(op: Operation, x: View, dim: Any, keepdim: bool = False) -> View:
    """The logarithm of a sum of exponentials."""
    at, wide = places(x, dim), op.wide(x)
    if kind(wide.dtype) < Kind.FLOAT:
        wide = op.trace.cast(wide, op.dtype)
    most = op.trace.reduce(wide, at, "max", keep=True)
    # An infinite maximum is not subtracted from itself.
    safe = op.trace.map("where(abs(x) == inf, 0, x)", most)
    summed = op.trace.reduce(op.trace.map("exp(x - y)", wide, safe), at, "sum", keep=True)
    found = op.trace.map("log(x) + y", summed, safe, dtype=op.dtype)
    return found if keepdim else op.trace.squeeze(found, at)


def _running(op: Operation, x: View, dim: int, join: str, agg: str) -> View:
    if not x.dims:
        return op.trace.cast(x, op.dtype)
    place = dim % len(x.dims)
    given = op.trace.cast(x, op.dtype)
    every = tuple(range(len(x.dims)))
    numbers = op.trace.iota(x.shape[place], "int64")
    before = len(every)
    inner = tuple(before if k == place else k for k in every)
    reads = [Read(given, inner), Read(numbers, (before,)), Read(numbers, (place,))]
    return op.trace.einsum(reads, every, join, agg, op.dtype)


@operator("aten.cumsum")
def cumsum(op: Operation, x: View, dim: int, **_: Any) -> View:
    """Sums with all before; of a number, multiples of it."""
    if x.number is not None and x.dims:
        place = dim % len(x.dims)
        counts = op.trace.iota(x.shape[place], "int64", 1)
        for _k in range(len(x.dims) - 1 - place):
            counts = op.trace.unsqueeze(counts, len(counts.dims))
        return op.trace.map("x * y", op.trace.cast(x, op.dtype), counts, dtype=op.dtype)
    return _running(op, x, dim, "where(y <= z, x, 0)", "sum")


@operator("aten.cumprod")
def cumprod(op: Operation, x: View, dim: int, **_: Any) -> View:
    """Products with all before."""
    return _running(op, x, dim, "where(y <= z, x, 1)", "prod")

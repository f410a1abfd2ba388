"""Aggregations, running ones, orders along a dimension, softmaxes and normalizations.

As in torch, softmaxes and normalizations of low precision are computed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from eindecomp.frontends.draft import View
from eindecomp.frontends.join import Indexed
from eindecomp.frontends.operations import first_in_order, first_largest, running
from eindecomp.frontends.torch.registry import Number, Operation, number, operator
from eindecomp.lang.dtypes import Kind, kind


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
    first = first_largest(op.trace, x, dim % len(x.dims), monoid)
    return op.trace.unsqueeze(first, dim % len(x.dims)) if keepdim else first


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
    squares = op.trace.reduce(apart, at, "sum", join=f"x * x / {number(count)}", keep=keep)
    return (squares if prod(x.shape) else op.trace.map("x + nan", squares)), mean


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
    by, at = int(unbiased) if correction is None else correction, places(x, dim)
    spread, middle = variance_of(op, x, at, keepdim, by)
    both = [spread, middle if keepdim else op.trace.squeeze(middle, at)]
    results = [op.trace.cast(each, op.dtype) for each in both]
    return results if len(op.results) == 2 else results[0]


@operator("aten.sort", "aten.topk")
def in_order(
    op: Operation, x: View, dim: int = -1, largest: bool = True, descending: bool = False, **_: Any
) -> list[View]:
    """All elements in order, or the first, and where they were."""
    if not x.dims:
        return [x, op.trace.number(0, "int64")]
    place, first = dim % len(x.dims), largest if op.short == "topk" else descending
    return first_in_order(op.trace, x, place, op.shape[place], largest=first)


def softmax_of(op: Operation, x: View, place: int, dtype: object) -> View:
    """A softmax along a dimension, computed in float32 if x is of low precision."""
    wide = op.wide(x)
    most = op.trace.reduce(wide, [place], "max", keep=True)
    powers = op.trace.map("exp(x - y)", wide, most)
    summed = op.trace.reduce(powers, [place], "sum", keep=True)
    return op.trace.map("x / y", powers, summed, dtype=dtype)


@operator("aten.softmax", "aten._softmax")
def softmax(op: Operation, x: View, dim: int, **_: Any) -> View:
    """Exponentials over their sum."""
    if not x.dims:
        return op.trace.number(1, op.dtype)
    return softmax_of(op, op.trace.cast(x, op.dtype), dim % len(x.dims), op.dtype)


@operator("aten.log_softmax", "aten._log_softmax")
def log_softmax(op: Operation, x: View, dim: int, **_: Any) -> View:
    """The logarithm of a softmax."""
    if not x.dims:
        return op.trace.number(0, op.dtype)
    every, place = tuple(range(len(x.dims))), dim % len(x.dims)
    wide = op.wide(op.trace.cast(x, op.dtype))
    most = op.trace.reduce(wide, [place], "max", keep=True)
    # Exponentials that are no tensor of their own are not kept for gradients.
    reads, kept = [Indexed(wide, every), Indexed(most, every)], [k for k in every if k != place]
    summed = op.trace.einsum(reads, kept, "exp(x - y)", "sum")
    logs = op.trace.unsqueeze(op.trace.map("log(x)", summed), place)
    return op.trace.map("x - y - z", wide, most, logs, dtype=op.dtype)


def _scaled(op: Operation, normalized: View, weight: View | None, bias: View | None) -> View:
    """What is normalized times a weight plus a bias, in the type of the result."""
    given = [op.wide(each) for each in (weight, bias) if each is not None]
    if not given:
        return op.trace.cast(normalized, op.dtype)
    join = "x * y + z" if len(given) == 2 else "x * y" if weight is not None else "x + y"
    return op.trace.map(join, normalized, *given, dtype=op.dtype)


def _standardized(
    op: Operation, x: View, at: Sequence[int], eps: float, known: tuple[View, View] | None = None
) -> View:
    """A tensor of mean 0 and variance 1, by statistics over dimensions, or known ones."""
    wide = op.wide(x)
    variance, mean = known or variance_of(op, wide, at, True)
    scale = op.trace.map(f"rsqrt(x + {number(eps)})", variance)
    return op.trace.map("(x - y) * z", wide, mean, scale)


@operator("aten.layer_norm")
def layer_norm(
    op: Operation,
    x: View,
    normalized_shape: Sequence[int],
    weight: View | None = None,
    bias: View | None = None,
    eps: float = 1e-5,
    **_: Any,
) -> View:
    """Normalized over the last dimensions."""
    at = [len(x.dims) - 1 - k for k in range(len(normalized_shape))]
    return _scaled(op, _standardized(op, x, at, eps), weight, bias)


@operator("aten.rms_norm")
def rms_norm(
    op: Operation,
    x: View,
    normalized_shape: Sequence[int],
    weight: View | None = None,
    eps: float | None = None,
) -> View:
    """Divided by the root of the mean square over the last dimensions."""
    at = [len(x.dims) - 1 - k for k in range(len(normalized_shape))]
    wide = op.wide(x)
    least = float(np.finfo(wide.dtype.name).eps) if eps is None else eps
    squares = mean_of(op, op.trace.map("x * x", wide), at, True)
    return _scaled(op, op.trace.map(f"x * rsqrt(y + {number(least)})", wide, squares), weight, None)


def _per_channel(op: Operation, x: View, given: View | None) -> View | None:
    """A vector of channels, shaped to go with dimension 1."""
    if given is None:
        return None
    return op.trace.reshape(op.wide(given), (*given.shape, *(1,) * (len(x.dims) - 2)))


@operator("aten.group_norm")
def group_norm(
    op: Operation,
    x: View,
    num_groups: int,
    weight: View | None = None,
    bias: View | None = None,
    eps: float = 1e-5,
    **_: Any,
) -> View:
    """Normalized over groups of channels and all that comes after."""
    batch, channels, *rest = x.shape
    groups = op.trace.reshape(x, (batch, num_groups, channels // num_groups, *rest))
    whole = op.trace.reshape(_standardized(op, groups, range(2, len(groups.dims)), eps), x.shape)
    return _scaled(op, whole, _per_channel(op, x, weight), _per_channel(op, x, bias))


@operator("aten.batch_norm")
def batch_norm(
    op: Operation,
    x: View,
    weight: View | None,
    bias: View | None,
    running_mean: View | None,
    running_var: View | None,
    training: bool,
    eps: float,
    **_: Any,
) -> View:
    """Normalized by running statistics, or by those of the batch where none are kept."""
    mean, variance = _per_channel(op, x, running_mean), _per_channel(op, x, running_var)
    if training and mean is not None:
        raise op.refuse(
            "changes running statistics, which a graph cannot; put the module in evaluation mode: "
            "module.eval()"
        )
    known = None if mean is None or variance is None else (variance, mean)
    normalized = _standardized(op, x, [k for k in range(len(x.dims)) if k != 1], eps, known)
    return _scaled(op, normalized, _per_channel(op, x, weight), _per_channel(op, x, bias))

"""Convolutions and pools: sums of products and aggregates over windows."""

from __future__ import annotations

from math import inf, prod
from typing import TYPE_CHECKING, Any

from eindecomp.frontends.operations import convolved, padded, windows
from eindecomp.frontends.torch.operators.aggregations import mean_of
from eindecomp.frontends.torch.registry import operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.torch.registry import Number, Operation
    from eindecomp.frontends.views import View


def _per_dimension(given: int | Sequence[int], count: int) -> list[int]:
    """A number for each dimension, where one stands for all."""
    many = [given] if isinstance(given, int) else [*given]
    return many * count if len(many) == 1 else many


def _padded(op: Operation, x: View, around: Sequence[int], value: Number = 0) -> View:
    """The last dimensions with a number before and after them."""
    first = len(x.dims) - len(around)
    for k, count in enumerate(around):
        x = padded(op.trace, x, op.trace.number(value, x.dtype), first + k, count, count)
    return x


@operator("aten.convolution")
def convolution(
    op: Operation,
    x: View,
    weight: View,
    bias: View | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
    **_: Any,
) -> View:
    """Sums of products over windows, and over the channels of each group."""
    if transposed:
        raise op.refuse("is not imported transposed")
    rank = len(weight.dims) - 2
    x = _padded(op, x, _per_dimension(padding, rank))
    steps, spreads = _per_dimension(stride, rank), _per_dimension(dilation, rank)
    made = convolved(op.trace, x, weight, steps, spreads, groups, op.dtype)
    if bias is None:
        return made
    wide = op.trace.reshape(bias, (*bias.shape, *(1,) * rank))
    return op.trace.map("x + y", made, wide, dtype=op.dtype)


@operator("aten.unfold")
def unfold(op: Operation, x: View, dimension: int, size: int, step: int) -> View:
    """The windows along a dimension, what is in them last."""
    if not x.dims:
        return op.trace.unsqueeze(x, 0)
    place = dimension % len(x.dims)
    last = [*(k for k in range(len(x.dims)) if k != place), place]
    seen, _ = windows(op.trace, op.trace.transpose(x, last), [size], [step], [1])
    order = [*range(place), len(last) - 1, *range(place, len(last) - 1), len(last)]
    return op.trace.transpose(seen, order)


def _seen(
    op: Operation,
    x: View,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    value: float,
) -> tuple[View, list[int]]:
    """The windows of a pool, and the dimensions that it aggregates."""
    rank = int(op.short.partition("_pool")[2][0])
    sizes = _per_dimension(kernel, rank)
    steps = _per_dimension(stride, rank) if stride else sizes
    x = _padded(op, x, _per_dimension(padding, rank), value)
    return windows(op.trace, x, sizes, steps, _per_dimension(dilation, rank))


@operator(
    "aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d",
    "aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices",
)  # fmt: skip
def max_pool(
    op: Operation,
    x: View,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
) -> View | list[View]:
    """The largest element of every window, without saying where it was."""
    seen, at = _seen(op, x, kernel_size, stride, padding, dilation, -inf)
    found = op.trace.reduce(seen, at, "max")
    return [found] if op.short.endswith("indices") else found


@operator("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d")
def avg_pool(
    op: Operation,
    x: View,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> View:
    """The mean of every window."""
    seen, at = _seen(op, x, kernel_size, stride, padding, 1, 0)
    if divisor_override or count_include_pad:
        count = divisor_override or prod(seen.shape[k] for k in at)
        return op.trace.reduce(seen, at, "sum", join=f"x / {count}", dtype=op.dtype)
    ones = op.trace.number(1, x.dtype, x.shape)
    counts = op.trace.reduce(_seen(op, ones, kernel_size, stride, padding, 1, 0)[0], at, "sum")
    return op.trace.map("x / y", op.trace.reduce(seen, at, "sum"), counts, dtype=op.dtype)


@operator(
    "aten.adaptive_avg_pool1d", "aten.adaptive_avg_pool2d", "aten.adaptive_avg_pool3d",
    "aten._adaptive_avg_pool2d",
)  # fmt: skip
def adaptive_avg_pool(op: Operation, x: View, output_size: Sequence[int]) -> View:
    """The means of parts, as many as are wanted."""
    rank = len(output_size)
    before = x.shape[:-rank]
    pairs = [*zip(x.shape[-rank:], op.shape[-rank:], strict=True)]
    if any(size % count for size, count in pairs):
        raise op.refuse(f"is imported for sizes that divide those of the input, {x.shape}")
    apart = op.trace.reshape(x, (*before, *(n for s, c in pairs for n in (c, s // c))))
    at = [len(before) + 2 * k + 1 for k in range(rank)]
    return op.trace.cast(mean_of(op, apart, at, False), op.dtype)

"""Pools: aggregations over windows."""

from __future__ import annotations

from math import inf, prod
from typing import TYPE_CHECKING, Any

from eindecomp.frontends.torch.operators.reductions import mean_of
from eindecomp.frontends.torch.operators.windows import padded, per_dimension, windows
from eindecomp.frontends.torch.registry import operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.torch.registry import Operation
    from eindecomp.frontends.views import View


def _seen(
    op: Operation,
    x: View,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    value: float,
) -> tuple[View, list[int]]:
    """The windows of a pool, and the dimensions that it aggregates."""
    if ceil_mode:
        raise op.refuse("is not imported with ceil_mode")
    rank = int(op.name.partition("_pool")[2][0])
    sizes = per_dimension(kernel, rank)
    steps = per_dimension(stride, rank) if stride else sizes
    around = [(n, n) for n in per_dimension(padding, rank)]
    x = padded(op, x, around, value)
    seen = windows(op, x, sizes, steps, per_dimension(dilation, rank))
    first = len(seen.dims) - 2 * rank
    return seen, [first + 2 * k + 1 for k in range(rank)]


@operator("aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d")
def max_pool(
    op: Operation,
    x: View,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> View:
    """The largest element of every window."""
    seen, at = _seen(op, x, kernel_size, stride, padding, dilation, ceil_mode, -inf)
    return op.trace.reduce(seen, at, "max")


@operator("aten.max_pool2d_with_indices")
def max_pool_with_indices(
    op: Operation,
    x: View,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> list[View]:
    """The largest element of every window, without saying where it was."""
    return [max_pool(op, x, kernel_size, stride, padding, dilation, ceil_mode)]


@operator("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d")
def avg_pool(
    op: Operation,
    x: View,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> View:
    """The mean of every window."""
    seen, at = _seen(op, x, kernel_size, stride, padding, 1, ceil_mode, 0)
    if divisor_override or count_include_pad:
        count = divisor_override or prod(seen.shape[k] for k in at)
        return op.trace.reduce(seen, at, "sum", join=f"x / {count}", dtype=op.dtype)
    ones = op.trace.number(1, x.dtype, x.shape)
    seen_ones, _ = _seen(op, ones, kernel_size, stride, padding, 1, ceil_mode, 0)
    counts = op.trace.reduce(seen_ones, at, "sum")
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

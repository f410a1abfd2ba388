"""Convolutions, as sums of products over windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.frontends.join import Read
from eindecomp.frontends.torch.operators.windows import padded, per_dimension, windows
from eindecomp.frontends.torch.registry import operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.torch.registry import Operation
    from eindecomp.frontends.views import View


@operator("aten.conv1d", "aten.conv2d", "aten.conv3d", "aten.convolution")
def convolution(
    op: Operation,
    x: View,
    weight: View,
    bias: View | None = None,
    stride: int | Sequence[int] = 1,
    padding: Any = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    transposed: bool = False,
    **_: Any,
) -> View:
    """Sums of products over windows, and over the channels of each group."""
    if transposed:
        raise op.refuse("is not imported transposed")
    rank = len(weight.dims) - 2
    alone = len(x.dims) == rank + 1
    x = op.trace.unsqueeze(x, 0) if alone else x
    kernel = weight.shape[2:]
    steps, apart = per_dimension(stride, rank), per_dimension(dilation, rank)
    x = padded(op, x, _around(padding, kernel, apart))
    shape = (1, *op.shape) if alone else op.shape
    _vote(op, x, weight, rank)
    seen = windows(op, x, kernel, steps, apart)
    batch, channels, *rest = seen.shape
    grouped = op.trace.reshape(seen, (batch, groups, channels // groups, *rest))
    filters = weight.shape[0] // groups
    by = op.trace.reshape(weight, (groups, filters, *weight.shape[1:]))
    # Symbols: batch, group, filter, channel, then places of windows and places in them.
    b, g, f, c = range(4)
    places = [4 + 2 * k for k in range(rank)]
    inside = [5 + 2 * k for k in range(rank)]
    spread = [symbol for pair in zip(places, inside, strict=True) for symbol in pair]
    reads = [Read(grouped, (b, g, c, *spread)), Read(by, (g, f, c, *inside))]
    made = op.trace.einsum(reads, (b, g, f, *places), dtype=op.dtype)
    made = op.trace.reshape(made, shape)
    if bias is not None:
        wide = op.trace.reshape(bias, (*bias.shape, *(1,) * rank))
        made = op.trace.map("x + y", made, wide, dtype=op.dtype)
    return op.trace.squeeze(made, [0]) if alone else made


def _around(padding: Any, kernel: Sequence[int], apart: Sequence[int]) -> list[tuple[int, int]]:
    """How much is added before and after each dimension."""
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding == "same":
        totals = [gap * (size - 1) for size, gap in zip(kernel, apart, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(n, n) for n in per_dimension(padding, len(kernel))]


def _vote(op: Operation, x: View, weight: View, rank: int) -> None:
    places = {1: ("x",), 2: ("y", "x"), 3: ("z", "y", "x")}[rank]
    inside = {1: ("i",), 2: ("j", "i"), 3: ("k", "j", "i")}[rank]
    op.trace.vote(x, ("b", "c", *places))
    op.trace.vote(weight, ("f", None, *inside), 1)

"""Windows that move over the last dimensions of a tensor, as convolutions and pools read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.frontends.operations.windows import windowed
from eindecomp.frontends.torch.operators.shapes import pad_constant
from eindecomp.frontends.torch.registry import operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.torch.registry import Number, Operation
    from eindecomp.frontends.views import View


def per_dimension(given: int | Sequence[int], count: int) -> list[int]:
    """A number for each dimension, where one stands for all."""
    many = [given] if isinstance(given, int) else [*given]
    return many * count if len(many) == 1 else many


def windows(
    op: Operation,
    x: View,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> View:
    """Each of the last dimensions as two: places of the window, and places in it."""
    first = len(x.dims) - len(kernel)
    for k, (size, step, apart) in enumerate(zip(kernel, stride, dilation, strict=True)):
        x = windowed(op.trace, x, first + 2 * k, size, step, apart)
    return x


@operator("aten.unfold")
def unfold(op: Operation, x: View, dimension: int, size: int, step: int) -> View:
    """The windows along a dimension, what is in them last."""
    if not x.dims:
        return op.trace.unsqueeze(x, 0)
    place = dimension % len(x.dims)
    last = [*(k for k in range(len(x.dims)) if k != place), place]
    seen = windows(op, op.trace.transpose(x, last), [size], [step], [1])
    order = [*range(place), len(last) - 1, *range(place, len(last) - 1), len(last)]
    return op.trace.transpose(seen, order)


def padded(op: Operation, x: View, around: Sequence[tuple[int, int]], value: Number = 0) -> View:
    """The last dimensions with a number before and after them."""
    flat = [n for pair in reversed(around) for n in pair]
    return pad_constant(op, x, flat, value) if any(flat) else x

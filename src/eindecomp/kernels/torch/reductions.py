"""Aggregations: torch's own for the built-in ones, a balanced tree for others, large in pieces.

A label space is worked through in pieces so that what is joined at once stays small. This is the
last resort of joins that no matrix product and no generated kernel computes. While a region is
traced it is left out for aggregations that the compiler fuses with their joins: those are never in
memory.
"""

from __future__ import annotations

import sys
from functools import partial, reduce
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.kernels.torch.functions import extreme
from eindecomp.kernels.torch.tensors import CARRIED, carried, put_back
from eindecomp.lang.monoid import BUILTIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from eindecomp.kernels.torch.tensors import LabelBox
    from eindecomp.lang.einsum import Labels
    from eindecomp.lang.monoid import Monoid

    States = tuple[Tensor, ...]

LIMIT = 2**28
"""The most bytes that are joined at once."""
_TRACER = "torch.fx.experimental.proxy_tensor"


def is_builtin(agg: Monoid) -> bool:
    """Whether torch has a reduction for an aggregation."""
    return BUILTIN.get(agg.name) == agg


def reduce_builtin(agg: Monoid, x: Tensor, axes: Sequence[int], identity: Tensor) -> Tensor:
    """Aggregate joined values of the state's type along dimensions."""
    if not axes:
        return x
    match agg.name:
        case "any":
            return torch.any(x, dim=tuple(axes))
        case "all":
            return torch.all(x, dim=tuple(axes))
        case "sum":
            return put_back(torch.sum(carried(x), dim=tuple(axes)), x.dtype)
        case "prod":
            found = carried(x)
            for axis in sorted(axes, reverse=True):
                found = torch.prod(found, dim=axis)
            return put_back(found, x.dtype)
        case _:
            return _extreme(agg.name, x, axes, identity)


def _extreme(name: str, x: Tensor, axes: Sequence[int], identity: Tensor) -> Tensor:
    """The largest or smallest, NaN if there is one; the identity where there is nothing."""
    left = _without(x.shape, axes)
    if any(x.shape[axis] == 0 for axis in axes):
        return identity.expand(left)
    function: Any = torch.amax if name == "max" else torch.amin
    if x.dtype in CARRIED:
        return extreme(partial(function, dim=tuple(axes)), x)
    return function(x, dim=tuple(axes))


def reduce_tree(
    values: States,
    axes: Sequence[int],
    combine: Callable[[States, States], States],
    identity: States,
) -> States:
    """Aggregate by halving, n values in log2(n) steps; the identity is combined with them once.

    One value alone has to go through `combine` too, for it may change what enters a state.
    """
    shape = values[0].shape
    left = _without(shape, axes)
    neutral = tuple(x.expand(left) for x in identity)
    if any(shape[axis] == 0 for axis in axes):
        return neutral
    for axis in sorted(axes, reverse=True):
        values = _halved(values, axis, combine)
    return combine(neutral, values)


def _halved(values: States, axis: int, combine: Callable[[States, States], States]) -> States:
    rest: States | None = None
    while (size := values[0].shape[axis]) > 1:
        half, odd = divmod(size, 2)
        if odd:
            last = _part(values, axis, size - 1, 1)
            rest = last if rest is None else combine(rest, last)
        values = combine(_part(values, axis, 0, half), _part(values, axis, half, half))
    values = values if rest is None else combine(values, rest)
    return tuple(x.squeeze(axis) for x in values)


def _part(values: States, axis: int, start: int, length: int) -> States:
    return tuple(x.narrow(axis, start, length) for x in values)


def _without(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    return [size for axis, size in enumerate(shape) if axis not in axes]


def is_traced() -> bool:
    """Whether operations are recorded for a compiler rather than run."""
    tracer: Any = sys.modules.get(_TRACER)  # what was never imported traces nothing
    return torch.compiler.is_compiling() or (
        tracer is not None and tracer.get_proxy_mode() is not None
    )


def in_pieces(
    box: LabelBox,
    output: Labels,
    itemsize: int,
    compute: Callable[[LabelBox], States],
    combine: Callable[[States, States], States],
) -> States:
    """The states of a box of labels: `compute` gives those of a part, of at most `LIMIT` bytes."""
    points = prod(length for _, length in box.values())
    pieces = -(-points * itemsize // LIMIT)
    if pieces <= 1:
        return compute(box)
    # The longest label of the result, or an aggregated one where the result has none left.
    kept = [label for label in output if box[label][1] > 1]
    label = max(kept or box, key=lambda label: box[label][1])
    start, length = box[label]
    step = -(-length // min(pieces, length))
    found: list[States] = []
    for low in range(start, start + length, step):
        part = {**box, label: (low, min(step, start + length - low))}
        found.append(in_pieces(part, output, itemsize, compute, combine))
    if label not in output:
        return reduce(combine, found)
    axis = output.index(label)
    return tuple(torch.cat(parts, axis) for parts in zip(*found, strict=True))

"""Aggregations along dimensions: torch's own for the built-in ones, a balanced tree for others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.kernels.torch.dtypes import CARRIED, carried, put_back
from eindecomp.kernels.torch.functions import extreme
from eindecomp.lang.monoid import BUILTIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from eindecomp.lang.monoid import Monoid

    States = tuple[Tensor, ...]


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
            return put_back(_product(carried(x), axes), x.dtype)
        case _:
            return _extreme(agg.name, x, axes, identity)


def _product(x: Tensor, axes: Sequence[int]) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, dim=axis)
    return x


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

"""The arrays that problems are packed in: their types, how ∞ is written, and where parts start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Costs = NDArray[Any]
"""Either int64 or float64."""

INFINITE = np.iinfo(np.int64).max
"""How ∞ is written among integers."""
EXACT = 2**53
"""Integers up to here are exact in float64."""


@dataclass(frozen=True, slots=True, repr=False)
class Factor:
    """A cost table over three or more variables.

    Args:
        scope: The variables, such as `(0, 1, 4)`.
        table: Costs, such as `np.zeros((2, 2, 3))`; axis `a` is the choice of `scope[a]`.

    Examples:
        >>> Factor((0, 1, 2), np.zeros((2, 2, 3)))
        <Factor over variables 0, 1, 2: 12 costs>
    """

    scope: tuple[int, ...]
    table: Costs

    def __repr__(self) -> str:
        variables = ", ".join(map(str, self.scope))
        return f"<Factor over variables {variables}: {self.table.size} costs>"


def infinite_where(mask: Mask, costs: Costs) -> Costs:
    """The costs with ∞ where the mask holds."""
    infinite = INFINITE if costs.dtype.kind == "i" else np.inf
    return np.where(mask, costs.dtype.type(infinite), costs)


def is_infinite(costs: Costs) -> Mask:
    """Where costs are ∞."""
    return costs >= (INFINITE if costs.dtype.kind == "i" else np.inf)


def multiplied(costs: Costs, times: int) -> Costs:
    """Several times the costs; what is infinite stays so."""
    return costs if times == 1 else infinite_where(is_infinite(costs), costs * times)


def added(one: Costs, other: Costs) -> Costs:
    """The sum of costs; what is infinite stays so."""
    return infinite_where(is_infinite(one) | is_infinite(other), one + other)


def offsets(sizes: Ints) -> Ints:
    """Where each part of a packed array starts, and where the last one ends.

    >>> offsets(np.array([2, 3])).tolist()
    [0, 2, 5]
    """
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)])


def places(start: Ints, sizes: Ints) -> Ints:
    """The indices of parts of a packed array, given where each starts and how long it is.

    >>> places(np.array([0, 7]), np.array([2, 3])).tolist()
    [0, 1, 7, 8, 9]
    """
    return np.arange(int(sizes.sum())) + np.repeat(start - offsets(sizes)[:-1], sizes)


def summed_at(places: Ints, values: Costs, size: int) -> Floats:
    """An array of sums: each value is added at its place.

    >>> summed_at(np.array([0, 2, 0]), np.array([1, 2, 3]), 3).tolist()
    [4.0, 0.0, 2.0]
    """
    sums = np.zeros(size)
    np.add.at(sums, places, values)
    return sums


def largest_places(values: Costs, offset: Ints) -> Ints:
    """Where in each part of a packed array its largest value is, the first of equal ones.

    >>> largest_places(np.array([1, 3, 3, 5]), np.array([0, 3, 4])).tolist()
    [1, 0]
    """
    peaks = np.maximum.reduceat(values, offset[:-1])
    at_peak = np.flatnonzero(values == np.repeat(peaks, np.diff(offset)))
    _, first = np.unique(np.searchsorted(offset, at_peak, side="right"), return_index=True)
    return at_peak[first] - offset[:-1]


def largest_of_each(costs: Costs, offset: Ints) -> Floats:
    """The largest finite absolute value in each part of a packed array."""
    if costs.size == 0:
        return np.zeros(offset.size - 1)
    starts = offset[:-1]
    infinite = is_infinite(costs)
    if not infinite.any() and costs.dtype.kind == "i":  # without copies of large tables
        ends = np.maximum.reduceat(costs, starts), np.minimum.reduceat(costs, starts)
        return np.maximum(*(np.abs(end.astype(np.float64)) for end in ends))
    finite = ~infinite if costs.dtype.kind == "i" else np.isfinite(costs)
    return np.maximum.reduceat(np.abs(np.where(finite, costs, 0)).astype(np.float64), starts)

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


def offsets(sizes: Ints) -> Ints:
    """Where each part of a packed array starts, and where the last one ends.

    >>> offsets(np.array([2, 3])).tolist()
    [0, 2, 5]
    """
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)])


def largest_of_each(costs: Costs, offset: Ints) -> Floats:
    """The largest finite absolute value in each part of a packed array."""
    if costs.size == 0:
        return np.zeros(offset.size - 1)
    finite = costs < INFINITE if costs.dtype.kind == "i" else np.isfinite(costs)
    sizes = np.abs(np.where(finite, costs, 0)).astype(np.float64)
    return np.maximum.reduceat(sizes, offset[:-1])

"""The rule by which a dimension is cut into pieces: balanced, even or ceil.

Axes cut one after another, outermost first, and whatever the rule, the pieces of a finer cut lie
inside those of the coarser, and the largest of m pieces of n units has ⌈n/m⌉.

- `balanced`: piece k of n units cut m ways is `k*n//m : (k+1)*n//m`; sizes differ by at most one.
- `even`: only cuts into equal pieces exist, as in JAX.
- `ceil`: each axis of size m cuts what the axes outside it have left, n units, into chunks of
  ⌈n/m⌉, as `torch.chunk` and DTensor do. The last ones are shorter, or empty: 5 over 4 is 2, 2, 1
  and 0.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

BALANCED, EVEN, CEIL = PIECES = ("balanced", "even", "ceil")


def can_cut(rule: str, units: Any, parts: Any) -> Any:
    """Whether units can be cut into so many parts: numbers, or arrays of them.

    >>> can_cut("balanced", 6, 4), can_cut("even", 6, 4), can_cut("even", 6, 3)
    (True, False, True)
    """
    if rule == EVEN:
        return (parts <= units) & (units % parts == 0)
    return parts <= units


def piece_ends(rule: str, units: int, sizes: Sequence[int], index: int) -> tuple[int, int]:
    """Where a piece begins and ends when axes of these sizes cut, outermost first.

    >>> [piece_ends("balanced", 5, (2, 2), k) for k in range(4)]
    [(0, 1), (1, 2), (2, 3), (3, 5)]
    >>> [piece_ends("ceil", 5, (4,), k) for k in range(4)]
    [(0, 2), (2, 4), (4, 5), (5, 5)]
    >>> [piece_ends("ceil", 5, (2, 2), k) for k in range(4)]
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    inside = prod(sizes)
    if rule != CEIL:
        return index * units // inside, (index + 1) * units // inside
    low, length = 0, units
    for size in sizes:
        inside //= size
        digit, index = divmod(index, inside)
        chunk = -(-length // size)
        first = min(digit * chunk, length)
        low, length = low + first, min(chunk, length - first)
    return low, low + length


def chunk_ends(units: int, sizes: Sequence[int], digits: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Where chunks begin and end at given coordinates along each axis, outermost first."""
    low, length = np.int64(0), np.int64(units)
    for size, digit in zip(sizes, digits, strict=True):
        chunk = -(-length // size)
        first = np.minimum(digit * chunk, length)
        low, length = low + first, np.minimum(chunk, length - first)
    return np.asarray(low), np.asarray(low + length)

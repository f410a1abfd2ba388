"""Viable partition vectors: the ways to cut labels into as many pieces as there are devices.

The prime factors of p are balls, the labels buckets: each way to throw all balls is one vector, if
no label is cut into more pieces than it has elements.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.planner.mesh import prime_factors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def viable(sizes: Mapping[str, int], devices: int) -> list[dict[str, int]]:
    """Every viable partition vector over the labels with these sizes.

    >>> viable({"i": 8, "k": 8}, 4)
    [{'i': 1, 'k': 4}, {'i': 2, 'k': 2}, {'i': 4, 'k': 1}]
    """
    vectors: list[list[int]] = viable_parts(tuple(sizes.values()), prime_factors(devices)).tolist()
    return [dict(zip(sizes, parts, strict=True)) for parts in vectors]


@lru_cache(maxsize=4096)
def viable_parts(sizes: tuple[int, ...], factors: tuple[int, ...]) -> Ints:
    """One row per viable vector, those that divide the sizes first.

    If the labels cannot take all factors, the vectors with the most pieces of those they can.
    """
    sizes = tuple(max(size, 1) for size in sizes)  # what is empty stays in one piece
    parts = _throws(factors, len(sizes))
    fits = parts[(parts <= np.array(sizes, dtype=np.int64)).all(axis=1)]
    if fits.size == 0 and len(sizes):
        # One more bucket takes the balls that find no room.
        spare = _throws(factors, len(sizes) + 1)[:, :-1]
        spare = spare[(spare <= np.array(sizes)).all(axis=1)]
        pieces = spare.prod(axis=1)
        fits = np.unique(spare[pieces == pieces.max()], axis=0)
    if not sizes:
        return fits
    uneven: Ints = np.sum(np.array(sizes, dtype=np.int64) % fits != 0, axis=1)
    return fits[np.lexsort((*fits.T[::-1], uneven))]


def _throws(factors: tuple[int, ...], buckets: int) -> Ints:
    """Every way to throw the factors into the buckets, as the products in each."""
    if buckets == 0:
        return np.ones((1, 0), dtype=np.int64)
    by_prime = [
        np.int64(prime) ** compositions(factors.count(prime), buckets)
        for prime in sorted(set(factors))
    ]
    start = np.ones((1, buckets), dtype=np.int64)
    return reduce(lambda a, b: (a[:, None] * b[None]).reshape(-1, buckets), by_prime, start)


@lru_cache(maxsize=256)
def compositions(balls: int, buckets: int) -> Ints:
    """Every way to throw equal balls into buckets: C(balls + buckets - 1, buckets - 1) rows."""
    if buckets == 0:
        return np.zeros((int(balls == 0), 0), dtype=np.int64)
    thrown = list(combinations(range(balls + buckets - 1), buckets - 1))
    rows = len(thrown)
    bars = np.array(thrown, dtype=np.int64).reshape(rows, buckets - 1)
    edges = np.concatenate(
        [np.full((rows, 1), -1), bars, np.full((rows, 1), balls + buckets - 1)], axis=1
    )
    return np.diff(edges, axis=1) - 1

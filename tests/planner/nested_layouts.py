"""Nested layouts of tensors on a mesh, and what moves between them, from the definitions alone.

A layout gives for each dimension the axes that cut it, outermost first, in any order; an axis in
none replicates. Balanced piece i of k of n elements is [i·n//k, (i+1)·n//k); even pieces are the
same where k divides n, and there are no others. By the rule "ceil" each axis, outermost first, cuts
what is left as `torch.chunk` does: into chunks of ⌈n/k⌉ until nothing is left.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise, permutations, product
from math import inf, prod
from typing import TYPE_CHECKING

import numpy as np
from brute_bytes import Axes, Layout, pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

Shape = tuple[int, ...]
ANY, MESH = "any", "mesh"
"""The orders in which axes that cut one dimension may nest: any, or that of the mesh."""
BALANCED, EVEN, CEIL = "balanced", "even", "ceil"


@lru_cache(maxsize=1 << 12)
def dealt(given: tuple[int, ...], piles: int, order: str) -> list[Layout]:
    """Every way to put these axes on piles, or aside, and to order each pile."""
    found: list[Layout] = []
    for row in product(range(-1, piles), repeat=len(given)):
        groups = [tuple(a for a, k in zip(given, row, strict=True) if k == i) for i in range(piles)]
        orders = [permutations(group) if order == ANY else [group] for group in groups]
        found += product(*orders)
    return found


def fits(sizes: Sequence[int], layout: Layout, axes: Axes, rule: str = BALANCED) -> bool:
    """Whether no dimension has more pieces than elements, nor unequal ones where that matters."""
    counts = [pieces(axes, own) if own else 1 for own in layout]
    pairs = list(zip(counts, sizes, strict=True))
    if rule == EVEN and any(size % count for count, size in pairs):
        return False
    return all(count == 1 or count <= size for count, size in pairs)


def cut_most(sizes: Sequence[int], axes: Axes, order: str, rule: str = BALANCED) -> list[Layout]:
    """The layouts that make the most pieces."""
    every = [
        layout
        for layout in dealt(tuple(range(len(axes))), len(sizes), order)
        if fits(sizes, layout, axes, rule)
    ]
    made = [pieces(axes, sum(layout, ())) for layout in every]
    return [layout for layout, n in zip(every, made, strict=True) if n == max(made)]


def cut_into(parts: Sequence[int], axes: Axes, order: str) -> list[Layout]:
    """The layouts that make so many pieces of each dimension."""
    every = dealt(tuple(range(len(axes))), len(parts), order)
    return [layout for layout in every if [pieces(axes, own) for own in layout] == list(parts)]


def chunks(size: int, count: int) -> list[tuple[int, int]]:
    """What `torch.chunk` makes of so many elements, and nothing for those that it leaves out."""
    step = -(-size // count)
    starts = [min(k * step, size) for k in range(count + 1)]
    return list(pairwise(starts))


def intervals(
    size: int, cut_by: Sequence[int], axes: Axes, rule: str = BALANCED
) -> tuple[Ints, Ints]:
    """Where a dimension starts and stops on every device; the last axis runs fastest."""
    if rule == CEIL:
        ends: list[tuple[int, int]] = []
        for place in product(*map(range, axes)):
            low, high = 0, size
            for axis in cut_by:
                first, last = chunks(high - low, axes[axis])[place[axis]]
                low, high = low + first, low + last
            ends.append((low, high))
        starts, stops = np.array(ends, np.int64).T
        return starts, stops
    at = np.indices(axes).reshape(len(axes), prod(axes))
    index, parts = np.zeros(prod(axes), np.int64), 1
    for axis in cut_by:
        index, parts = index * axes[axis] + at[axis], parts * axes[axis]
    return index * size // parts, (index + 1) * size // parts


@lru_cache(maxsize=1 << 12)
def all_boxes(
    shape: Shape, layouts: tuple[Layout, ...], axes: Axes, rule: str = BALANCED
) -> tuple[Ints, Ints]:
    """Starts and stops by layout, dimension and device."""
    ends = [
        [intervals(size, cut_by, axes, rule) for size, cut_by in zip(shape, layout, strict=True)]
        for layout in layouts
    ]
    both = np.array(ends, np.int64).reshape(len(layouts), len(shape), 2, prod(axes))
    return both[:, :, 0], both[:, :, 1]


@lru_cache(maxsize=1 << 12)
def received(
    shape: Shape,
    held: tuple[Layout, ...],
    needed: tuple[Layout, ...],
    axes: Axes,
    rule: str = BALANCED,
) -> Floats:
    """What all devices receive, by what they hold and what they need; ∞ if nobody holds some of it.

    Only what reads a diagonal holds less than the whole tensor.
    """
    low, high = all_boxes(shape, held, axes, rule)
    start, stop = all_boxes(shape, needed, axes, rule)
    sides = np.minimum(high[:, None], stop) - np.maximum(low[:, None], start)
    there = np.maximum(sides, 0).prod(axis=2).sum(axis=-1)
    lacking = ((stop - start).prod(axis=1).sum(axis=-1) - there).astype(np.float64)
    for i, own in enumerate(held):
        if len(set(sum(own, ()))) < len(sum(own, ())):
            has = union(shape, own, axes, rule)
            for k, need in enumerate(needed):
                if (union(shape, need, axes, rule) & ~has).any():
                    lacking[i, k] = inf
    return lacking


def union(shape: Shape, layout: Layout, axes: Axes, rule: str = BALANCED) -> NDArray[np.bool_]:
    """The elements that some device has."""
    mask = np.zeros(shape, dtype=bool)
    low, high = all_boxes(shape, (layout,), axes, rule)
    for device in range(prod(axes)):
        mask[tuple(map(slice, low[0, :, device], high[0, :, device]))] = True
    return mask


def held(shape: Shape, layouts: Sequence[Layout], axes: Axes) -> Floats:
    """The elements on all devices, if each had the largest piece."""
    sides = [
        [-(-size // pieces(axes, own)) for size, own in zip(shape, layout, strict=True)]
        for layout in layouts
    ]
    return np.array([prod(axes) * prod(own) for own in sides], np.float64)

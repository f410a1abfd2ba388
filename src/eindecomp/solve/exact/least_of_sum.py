"""Minimises a sum of tables over one variable in compiled loops, for large eliminations.

The tables are added up into two: `rows`, those that have a certain axis c, and `scalars`, those
that do not. The joined table is then never built: for each cell of the other axes, one pass per
choice adds a scalar to a row and keeps the minimum.
"""

from __future__ import annotations

from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from eindecomp.solve import budgets
from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import Floats, Ints

Number = TypeVar("Number", np.float64, np.int32)


def least_of_sum(parts: list[Floats], shape: tuple[int, ...]) -> tuple[Floats, NDArray[np.int32]]:
    """The minimum over the first axis of the parts' broadcast sum, and where it is reached."""
    rows, scalars, least, c = _two_sums(parts, shape)
    best = np.zeros(least.shape, dtype=np.int32)
    _scan(*rows, *scalars, least, best)
    return _back(least, shape, c), _back(best, shape, c)


def _two_sums(
    parts: list[Floats], shape: tuple[int, ...]
) -> tuple[tuple[Floats, Ints], tuple[Floats, Ints], Floats, int]:
    """Rows and scalars, each with the places of all outer cells, ∞ for each cell, and axis c."""
    c = _row_axis(parts, shape)
    order = [0, *(a for a in range(1, len(shape)) if a != c), c]
    moved = [part.transpose(order) for part in parts]
    outer = tuple(shape[a] for a in order[1:-1])
    blank = (shape[0], *(1 for _ in outer))
    rows = _added([part for part in moved if part.shape[-1] > 1], (*blank, shape[c]))
    scalars = _added([part for part in moved if part.shape[-1] == 1], (*blank, 1))
    least = np.full((prod(outer), shape[c]), np.inf)
    return (
        (rows.reshape(shape[0], -1), _places(rows, outer)),
        (scalars.reshape(shape[0], -1), _places(scalars, outer)),
        least,
        c,
    )


def _row_axis(parts: list[Floats], shape: tuple[int, ...]) -> int:
    """The axis that makes the two sums smallest; among equals, the one with the longest rows.

    Scalars that are ∞ are skipped, so a table that is mostly ∞ should not have that axis.
    """
    sparse = {
        a for a in range(1, len(shape)) if any(_is_sparse(p) and p.shape[a] > 1 for p in parts)
    }

    def cells(c: int) -> tuple[bool, int, int]:
        with_c = [p.shape for p in parts if p.shape[c] > 1]
        without = [p.shape for p in parts if p.shape[c] == 1]
        size = sum(
            prod(max(sides) for sides in zip(*group, strict=True))
            for group in (with_c, without)
            if group
        )
        return c in sparse, size, -shape[c]

    return min(range(1, len(shape)), key=cells)


def _is_sparse(part: Floats) -> bool:
    """Whether a table, small beside the joined one, is mostly ∞."""
    return part.size <= budgets.COUNTED_CELLS and bool(
        budgets.SPARSE_RATIO * np.count_nonzero(part < np.inf) < part.size
    )


def _added(parts: list[Floats], shape: tuple[int, ...]) -> Floats:
    """The parts' sum, with an axis of length 1 wherever no part has a longer one."""
    total = np.zeros(shape)
    for part in parts:
        total = total + part
    return np.ascontiguousarray(total)


def _places(table: Floats, outer: tuple[int, ...]) -> Ints:
    """Where in one choice's part of the table the row of each outer cell starts."""
    place = np.zeros(outer, dtype=np.int64)
    stride = table.shape[-1]
    for axis in range(len(outer) - 1, -1, -1):
        if table.shape[1 + axis] > 1:
            index = np.arange(outer[axis]) * stride
            place += index.reshape([-1 if a == axis else 1 for a in range(len(outer))])
            stride *= table.shape[1 + axis]
    return place.ravel()


def _back(flat: NDArray[Number], shape: tuple[int, ...], c: int) -> NDArray[Number]:
    moved = (*(n for a, n in enumerate(shape) if a not in (0, c)), shape[c])
    return np.ascontiguousarray(np.moveaxis(flat.reshape(moved), -1, c - 1))


@compiled
def _scan(
    rows: Floats,
    row_at: Ints,
    scalars: Floats,
    scalar_at: Ints,
    least: Floats,
    best: NDArray[np.int32],
) -> None:
    width = least.shape[1]
    for o in range(least.shape[0]):
        low, where = least[o], best[o]
        for k in range(rows.shape[0]):
            own = scalars[k, scalar_at[o]]
            if own == np.inf:
                continue
            row = rows[k, row_at[o] : row_at[o] + width]
            for j in range(width):
                total = own + row[j]
                smaller = total < low[j]
                low[j] = total if smaller else low[j]
                where[j] = k if smaller else where[j]

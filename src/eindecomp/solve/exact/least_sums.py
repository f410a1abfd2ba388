"""Compiled loops over tables of two choices: the least of each row, column, or pair of choices."""

from __future__ import annotations

import numpy as np

from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import Floats

_LANES = 8  # so many least numbers of a row are kept beside each other, for vector instructions


@compiled
def least_of_rows(table: Floats, more: Floats) -> Floats:
    """The least number of each row, after `more` is added to each column."""
    rows, columns = table.shape
    even = columns - columns % _LANES
    found, lanes = np.empty(rows), np.empty(_LANES)
    for i in range(rows):
        lanes[:] = np.inf
        for j in range(0, even, _LANES):
            for k in range(_LANES):
                each = table[i, j + k] + more[j + k]
                lanes[k] = each if each < lanes[k] else lanes[k]
        least = lanes.min()
        for j in range(even, columns):
            least = min(least, table[i, j] + more[j])
        found[i] = least
    return found


@compiled
def least_of_columns(table: Floats, more: Floats) -> Floats:
    """The least number of each column, after `more` is added to each row."""
    rows, columns = table.shape
    found = np.full(columns, np.inf)
    for i in range(rows):
        for j in range(columns):
            each = table[i, j] + more[i]
            found[j] = each if each < found[j] else found[j]
    return found


@compiled
def least_of_pairs(
    first: Floats, table: Floats, either: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """The least cost of each choice a, alone or with a second choice b, and of each b.

    A choice a costs first[a], b beside it table[a, b]. Whoever else is there takes the cheaper of
    the two: number k pays either[0][k, a] or either[1][k, b].
    """
    rows, columns = table.shape
    ours, theirs = either
    by_first, by_second = np.empty(rows), np.full(columns, np.inf)
    for a in range(rows):
        costs = first[a] + table[a]
        alone = first[a]
        for k in range(len(ours)):
            alone += ours[k, a]
            for b in range(columns):
                costs[b] += min(ours[k, a], theirs[k, b])
        for b in range(columns):
            alone = min(alone, costs[b])
            by_second[b] = min(by_second[b], costs[b])
        by_first[a] = alone
    return by_first, by_second

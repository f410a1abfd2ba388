"""Compiled loops over cost tables: costs shifted between them, and their sum minimised.

`shift_costs` makes a bound that splits tables tighter: one forward and one backward pass of
sequential message passing, over tables of up to three variables. Shifting does not change the cost
of any choice, but a relaxation that minimises table by table loses less.

`least_of_sum` minimises a sum of tables over one variable, for large eliminations. The tables are
added up into two: `rows`, those that have a certain axis c, and `scalars`, those that do not. The
joined table is then never built: for each cell of the other axes, one pass per choice adds a scalar
to a row and keeps the minimum.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from eindecomp.solve import budgets
from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import Floats, Ints
from eindecomp.solve.problem.cost_network import CostNetwork, Table

WIDTH = 3  # the most variables of a table that takes part

Term = tuple[Table, ...]
"""Tables to be added up; the first one has all their variables."""


class FactorGraph(NamedTuple):
    """The tables over several variables, in flat arrays; shorter scopes are padded with -1."""

    scope: Ints
    sizes: Ints
    message: Ints
    """Where the messages to each variable of each table start."""
    table: Ints
    cells: Floats
    start: Ints
    """Where each variable's entries start in `near`, its tables, and `axis`, its axis in each."""
    near: Ints
    axis: Ints


def shift_costs(network: CostNetwork, *, integral: bool) -> list[Term]:
    """The same costs, all finite, shifted forward and back; by integers if `integral`."""
    wide = [entry for entry in network.tables if len(entry[0]) > WIDTH]
    narrow = [entry for entry in network.tables if 1 < len(entry[0]) <= WIDTH]
    offset = np.concatenate([[0], np.cumsum(network.sizes)]).astype(np.int64)
    unary = np.zeros(offset[-1])
    for scope, table in network.tables:
        if len(scope) == 1:
            unary[offset[scope[0]] : offset[scope[0] + 1]] += table
    factors = _factor_graph(network.sizes, narrow)
    messages = np.zeros(1 + int(factors.sizes[factors.scope >= 0].sum()))
    # More passes gain nothing: joining tables does the same, and better.
    for forward in (True, False) if narrow else ():
        _sweep(factors, offset, unary, messages, forward, integral)
    rows = [(((v,), unary[a:b]),) for v, (a, b) in enumerate(pairwise(offset.tolist()))]
    moved: list[Term] = []
    for (scope, table), start in zip(narrow, factors.message.tolist(), strict=True):
        # What was shifted from a table to its variables is subtracted from it.
        ends = zip(scope, table.shape, start, strict=False)
        shifts = (((v,), -messages[at : at + size]) for v, size, at in ends)
        moved.append(((scope, table), *shifts))
    return [*rows, *moved, *((entry,) for entry in wide)]


def _factor_graph(sizes: list[int], tables: list[Table]) -> FactorGraph:
    count = len(tables)
    scope = np.full((count, WIDTH), -1, dtype=np.int64)
    for f, (own, _) in enumerate(tables):
        scope[f, : len(own)] = own
    extent = np.where(scope >= 0, np.array(sizes, dtype=np.int64)[scope], 1)
    lengths = np.where(scope >= 0, extent, 0).ravel()
    message = (np.cumsum(lengths) - lengths).reshape(count, WIDTH)
    message[scope < 0] = lengths.sum()  # one extra message, which stays 0
    kept: dict[int, int] = {}
    parts: list[Floats] = []
    at = 0
    for _, table in tables:
        if id(table) not in kept:
            kept[id(table)] = at
            parts.append(table.ravel())
            at += table.size
    place = np.flatnonzero(scope.ravel() >= 0)
    place = place[np.argsort(scope.ravel()[place], kind="stable")]
    degree = np.bincount(scope[scope >= 0], minlength=len(sizes))
    return FactorGraph(
        scope,
        extent,
        message,
        np.array([kept[id(table)] for _, table in tables], dtype=np.int64),
        np.concatenate([*parts, np.zeros(0)]),
        np.concatenate([[0], np.cumsum(degree)]).astype(np.int64),
        place // WIDTH,
        place % WIDTH,
    )


@compiled
def _sweep(
    factors: FactorGraph,
    offset: Ints,
    unary: Floats,
    messages: Floats,
    forward: bool,
    integral: bool,
) -> None:
    """For each variable: collect the minima of its tables, then share them out to those ahead."""
    n = offset.size - 1
    least = np.zeros(1 + (offset[1:] - offset[:-1]).max())
    for position in range(n):
        v = position if forward else n - 1 - position
        own = unary[offset[v] : offset[v + 1]]
        ahead, behind = 0, 0
        for p in range(factors.start[v], factors.start[v + 1]):
            f, axis = factors.near[p], factors.axis[p]
            _least_of_each(factors, messages, f, axis, least)
            at = factors.message[f, axis]
            for k in range(own.size):
                messages[at + k] += least[k]
                own[k] += least[k]
            ahead += _reaches(factors, f, v, forward)
            behind += _reaches(factors, f, v, not forward)
        if ahead == 0:
            continue
        share = 1.0 / max(ahead, behind)
        for k in range(own.size):
            part = own[k] * share
            if integral:
                part = np.floor(part)
            own[k] -= part * ahead
            for p in range(factors.start[v], factors.start[v + 1]):
                if _reaches(factors, factors.near[p], v, forward):
                    messages[factors.message[factors.near[p], factors.axis[p]] + k] -= part


@compiled
def _reaches(factors: FactorGraph, f: int, v: int, forward: bool) -> bool:
    """Whether a table is over a variable that comes after `v`, or before it."""
    for axis in range(WIDTH):
        t = factors.scope[f, axis]
        if t >= 0 and t != v and (t > v) == forward:
            return True
    return False


@compiled
def _least_of_each(
    factors: FactorGraph, messages: Floats, f: int, axis: int, least: Floats
) -> None:
    """The minimum of a table less its messages, for each choice of one of its variables."""
    outer, middle, inner = factors.sizes[f]
    first, second, third = factors.message[f]
    least[: factors.sizes[f, axis]] = np.inf
    cell = factors.table[f]
    for i in range(outer):
        for j in range(middle):
            moved = messages[first + i] + messages[second + j]
            if axis == 2:
                for k in range(inner):
                    least[k] = min(least[k], factors.cells[cell + k] - messages[third + k] - moved)
            else:
                low = np.inf
                for k in range(inner):
                    low = min(low, factors.cells[cell + k] - messages[third + k])
                k = i if axis == 0 else j
                least[k] = min(least[k], low - moved)
            cell += inner


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
    by_row = rows.reshape(shape[0], -1), _places(rows, outer)
    by_cell = scalars.reshape(shape[0], -1), _places(scalars, outer)
    return by_row, by_cell, least, c


def _row_axis(parts: list[Floats], shape: tuple[int, ...]) -> int:
    """The axis that makes the two sums smallest; among equals, the one with the longest rows.

    Scalars that are ∞ are skipped, so a table that is mostly ∞ should not have that axis.
    """
    small = [part for part in parts if part.size <= budgets.COUNTED_CELLS]
    infinite = [p for p in small if budgets.SPARSE_RATIO * np.count_nonzero(p < np.inf) < p.size]
    sparse = {a for p in infinite for a in range(1, len(shape)) if p.shape[a] > 1}

    def cells(c: int) -> tuple[bool, int, int]:
        with_c = [p.shape for p in parts if p.shape[c] > 1]
        without = [p.shape for p in parts if p.shape[c] == 1]
        groups = [group for group in (with_c, without) if group]
        size = sum(prod(max(sides) for sides in zip(*group, strict=True)) for group in groups)
        return c in sparse, size, -shape[c]

    return min(range(1, len(shape)), key=cells)


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

"""Shifts costs between tables so that a bound that splits them is tighter.

One forward and one backward pass of sequential message passing, over tables of up to three
variables. Shifting does not change the cost of any choice, but a relaxation that minimises table by
table loses less.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

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
    moved = [(entry, *_moved(factors, messages, f, entry)) for f, entry in enumerate(narrow)]
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


def _moved(factors: FactorGraph, messages: Floats, f: int, entry: Table) -> list[Table]:
    """What was shifted from a table to its variables, as tables to subtract it with."""
    scope, table = entry
    start: list[int] = factors.message[f].tolist()
    return [
        ((v,), -messages[at : at + size])
        for v, size, at in zip(scope, table.shape, start, strict=False)
    ]


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

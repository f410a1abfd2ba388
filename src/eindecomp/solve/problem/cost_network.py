"""A problem as a list of cost tables, equal ones shared: the form that exact methods work on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np

from eindecomp.solve.problem.arrays import INFINITE, Costs, Floats, Ints, added
from eindecomp.solve.problem.problem import Problem

NONE = -1  # pads scopes that are shorter than the longest

Scope = tuple[int, ...]
Table = tuple[Scope, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class CostNetwork:
    """Tables over variables of given sizes; axis `a` of a table is the choice of `scope[a]`.

    Once `share_equal` has run, equal tables are one array: repeats are recognised by identity.
    """

    sizes: list[int]
    tables: list[Table]

    def scopes(self) -> Ints:
        """The scopes as rows of one array, padded with NONE."""
        columns = list(zip_longest(*(scope for scope, _ in self.tables), fillvalue=NONE))
        return np.array(columns, dtype=np.int64).T.reshape(len(self.tables), len(columns))

    @staticmethod
    def of_problem(problem: Problem) -> CostNetwork:
        """The costs of a problem; usages are ignored."""
        costs = problem.floats(problem.tables)
        shared = [costs[a:b] for a, b in pairwise(problem.table_offset.tolist())]
        unary = problem.floats(problem.unary)
        network = network_over(
            problem.domains, problem.offset, unary, problem.edges, shared, problem.table_of
        )
        known: dict[int, Floats] = {}
        for factor in problem.factors:
            if id(factor.table) not in known:
                known[id(factor.table)] = problem.floats(factor.table)
            network.tables.append(_distinct(factor.scope, known[id(factor.table)]))
        return network

    def to_problem(self, *, integral: bool) -> Problem:
        """The network as a problem again, with integer costs if `integral`."""
        kept: dict[int, Costs] = {id(table): table for _, table in self.tables}
        if integral:
            for key, table in kept.items():
                whole = np.where(np.isfinite(table), table, 0).astype(np.int64)
                kept[key] = np.where(np.isfinite(table), whole, INFINITE)
        unary = [np.zeros(size, np.int64 if integral else np.float64) for size in self.sizes]
        return problem_over(unary, [(scope, kept[id(table)]) for scope, table in self.tables])


def problem_over(
    unary: Sequence[Costs], tables: Iterable[tuple[Scope, Costs]], **limited: Any
) -> Problem:
    """The problem of unary costs and of tables over variables; a table that is one array is shared.

    `limited` are the usage, intervals and limit of `Problem.of`.
    """
    rows, edges, table_of = list(unary), list[Scope](), list[int]()
    grids: dict[int, Costs] = {}
    factors: list[tuple[Scope, Costs]] = []
    for scope, table in tables:
        if len(scope) == 1:
            rows[scope[0]] = added(rows[scope[0]], table)
        elif len(scope) == 2:
            edges.append(scope)
            table_of.append(id(table))
            grids[id(table)] = table
        else:
            factors.append((scope, table))
    numbers = {key: number for number, key in enumerate(grids)}
    shared = [numbers[key] for key in table_of]
    return Problem.of(rows, edges, list(grids.values()), factors, table_of=shared, **limited)


def share_equal(network: CostNetwork) -> CostNetwork:
    """The same network with equal tables stored once.

    >>> row, other = np.zeros(2), np.zeros(2)
    >>> shared = share_equal(CostNetwork([2, 2], [((0,), row), ((1,), other)]))
    >>> shared.tables[0][1] is shared.tables[1][1]
    True
    """
    kept: dict[Any, Floats] = {}
    seen: dict[int, Floats] = {}
    tables: list[Table] = []
    for scope, table in network.tables:
        place = id(table)
        if place not in seen:
            seen[place] = kept.setdefault((table.shape, table.tobytes()), table)
        tables.append((scope, seen[place]))
    return CostNetwork(network.sizes, tables)


def spread(scope: Scope, table: Floats, axes: Scope) -> Floats:
    """The table with its axes in the order of `axes`, and axes of length 1 for the others."""
    order = sorted(range(len(scope)), key=lambda i: axes.index(scope[i]))
    sizes = dict(zip(scope, table.shape, strict=True))
    return table.transpose(order).reshape([sizes.get(t, 1) for t in axes])


def network_over(
    domains: Ints, offset: Ints, unary: Floats, edges: Ints, parts: list[Floats], part_of: Ints
) -> CostNetwork:
    """The network of unary costs and of edges, each with one of the flat tables."""
    sizes: list[int] = domains.tolist()
    tables: list[Table] = [((v,), unary[a:b]) for v, (a, b) in enumerate(pairwise(offset.tolist()))]
    # One flat table may serve edges of different shapes.
    shape = domains[edges]
    key = (part_of * (domains.max(initial=0) + 1) + shape[:, 0]) if len(edges) else part_of
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    grids = [parts[part_of[e]].reshape(shape[e]) for e in first.tolist()]
    loops = edges[:, 0] == edges[:, 1]
    places: list[int] = place.tolist()
    placed = zip(edges.tolist(), places, strict=True)
    tables += [((u, v), grids[g]) for (u, v), g in placed if u != v]
    diagonal = np.flatnonzero(loops).tolist()
    tables += [_distinct((int(edges[e, 0]),) * 2, grids[places[e]]) for e in diagonal]
    return CostNetwork(sizes, tables)


def _distinct(scope: Scope, table: Floats) -> Table:
    """The table with the diagonal taken where its scope names a variable twice."""
    for axis, v in enumerate(scope):
        if (again := scope.index(v)) < axis:
            diagonal = np.moveaxis(np.diagonal(table, axis1=again, axis2=axis), -1, again)
            return _distinct((*scope[:axis], *scope[axis + 1 :]), diagonal)
    return scope, table

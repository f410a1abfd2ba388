"""Contracts variables into a neighbour that determines them.

A variable is determined by a neighbour if each choice of the neighbour leaves it one finite choice.
"""

from __future__ import annotations

import numpy as np

from eindecomp.solve import budgets
from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import Floats, Ints, offsets
from eindecomp.solve.problem.core import Core
from eindecomp.solve.reduce.substitute import Substitution


def determined_variables(core: Core) -> Substitution | None:
    """The substitution that contracts all determined variables; None if there are none."""
    parent, via = _determined(
        core.offset,
        core.edges,
        core.table_offset,
        core.tables,
        core.tables.size + budgets.CONTRACTED_GROWTH,
    )
    if not (parent >= 0).any():
        return None
    roots = parent < 0
    index = np.cumsum(roots) - 1
    root = _roots(parent)
    start = offsets(core.domains[root])
    value = _compose(parent, via, core.offset, core.edges, core.table_offset, core.tables, start)
    return Substitution(core.domains[roots], index[root], start[:-1], value)


@compiled
def _determined(
    offset: Ints, edges: Ints, table_offset: Ints, tables: Floats, most_entries: int
) -> tuple[Ints, Ints]:
    """A forest of determined variables: each one's parent and the edge to it, or -1."""
    n, m = offset.size - 1, edges.shape[0]
    parent, via = np.full(n, -1), np.full(n, -1)
    degree = np.zeros(n, dtype=np.int64)
    entries = np.zeros(n, dtype=np.int64)
    total = tables.size
    for e in range(m):
        for s in range(2):
            degree[edges[e, s]] += 1
            entries[edges[e, s]] += table_offset[e + 1] - table_offset[e]
    for want_bijection in (True, False):
        for e in range(m):
            rows_one, cols_one = _one_each(e, offset, edges, table_offset, tables)
            if want_bijection and not (rows_one and cols_one):
                continue
            for s in range(2):
                # All rows have one finite cell: the row's choice determines the column's.
                child, up = edges[e, 1 - s], edges[e, s]
                if not (rows_one if s == 0 else cols_one) or parent[child] >= 0:
                    continue
                root = up
                while parent[root] >= 0:
                    root = parent[root]
                if root == child:
                    continue
                small, large = offset[child + 1] - offset[child], offset[root + 1] - offset[root]
                growth = entries[child] * (large - small) // small
                if degree[child] > 1 and total + growth > most_entries:
                    continue
                total += growth
                parent[child], via[child] = up, e
                break
    return parent, via


@compiled
def _one_each(
    e: int, offset: Ints, edges: Ints, table_offset: Ints, tables: Floats
) -> tuple[bool, bool]:
    """Whether each row, and whether each column, has exactly one finite cell."""
    rows = offset[edges[e, 0] + 1] - offset[edges[e, 0]]
    cols = offset[edges[e, 1] + 1] - offset[edges[e, 1]]
    in_col = np.zeros(cols, dtype=np.int64)
    rows_one = True
    for i in range(rows):
        count = 0
        for j in range(cols):
            if np.isfinite(tables[table_offset[e] + i * cols + j]):
                count += 1
                in_col[j] += 1
        rows_one = rows_one and count == 1
    return rows_one, (in_col == 1).all()


@compiled
def _roots(parent: Ints) -> Ints:
    root = np.arange(parent.size)
    for i in range(parent.size):
        r = i
        while parent[r] >= 0:
            r = parent[r]
        root[i] = r
    return root


@compiled
def _compose(
    parent: Ints,
    via: Ints,
    offset: Ints,
    edges: Ints,
    table_offset: Ints,
    tables: Floats,
    start: Ints,
) -> Ints:
    """Each variable's choice as a function of its root's, along the tree."""
    value = np.zeros(start[-1], dtype=np.int64)
    path = np.zeros(parent.size, dtype=np.int64)
    for i in range(parent.size):
        depth, r = 0, i
        while parent[r] >= 0:
            path[depth] = r
            depth += 1
            r = parent[r]
        for k in range(offset[r + 1] - offset[r]):
            chosen, above = k, r
            for d in range(depth - 1, -1, -1):
                child = path[d]
                e = via[child]
                cols = offset[edges[e, 1] + 1] - offset[edges[e, 1]]
                size = offset[child + 1] - offset[child]
                for j in range(size):
                    place = chosen * cols + j if edges[e, 0] == above else j * cols + chosen
                    if np.isfinite(tables[table_offset[e] + place]):
                        chosen = j
                        break
                above = child
            value[start[i] + k] = chosen
    return value

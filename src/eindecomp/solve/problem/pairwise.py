"""Replaces each factor over three or more variables by a new variable and pairwise tables.

The new variable's choices are the factor's finite cells; a table to each variable of the scope is
0 where the cell agrees with the choice and ∞ elsewhere.
"""

from __future__ import annotations

import numpy as np

from eindecomp.errors import UnsolvedError
from eindecomp.solve.problem.arrays import INFINITE, Costs, Ints, offsets
from eindecomp.solve.problem.problem import Problem

_CHOICES = 1 << 17  # the most choices of a variable that stands for a factor


def pairwise(problem: Problem) -> tuple[Problem, int]:
    """An equivalent problem without factors, and how many variables it had before.

    New variables come after the old ones.
    """
    if not problem.factors:
        return problem, problem.size
    infinite = INFINITE if problem.integral else np.inf
    sizes, unary = [problem.domains], [problem.unary]
    edges, tables = [problem.edges], [problem.tables]
    for number, factor in enumerate(problem.factors):
        cells = np.flatnonzero(factor.table.ravel() != infinite)
        if cells.size > _CHOICES:
            raise UnsolvedError(
                f"the table over {factor.scope} has {cells.size} finite costs: too many to search"
            )
        if cells.size == 0:
            cells = np.zeros(1, dtype=np.int64)
        sizes.append(np.array([cells.size]))
        unary.append(factor.table.ravel()[cells])
        place = np.unravel_index(cells, factor.table.shape)
        for axis, variable in enumerate(factor.scope):
            edges.append(np.array([[problem.size + number, variable]]))
            tables.append(
                _agreement(place[axis], factor.table.shape[axis], infinite, unary[0].dtype)
            )
    domains: Ints = np.concatenate(sizes)
    pairs = np.concatenate(edges)
    extra = int(domains[problem.size :].sum())
    count = len(problem.factors)
    added = np.array([t.size for t in tables[1:]], dtype=np.int64)
    held = problem.table_offset.size - 1
    return Problem(
        offset=offsets(domains),
        unary=np.concatenate(unary),
        edges=pairs,
        table_of=np.concatenate(
            [problem.table_of, np.arange(held, held + len(pairs) - len(problem.edges))]
        ),
        table_offset=np.concatenate(
            [problem.table_offset[:-1], problem.tables.size + offsets(added)]
        ),
        tables=np.concatenate(tables),
        usage=None
        if problem.usage is None
        else np.concatenate([problem.usage, np.zeros(extra, problem.usage.dtype)]),
        intervals=None
        if problem.intervals is None
        else np.concatenate([problem.intervals, np.zeros((count, 2), np.int64)]),
        limit=problem.limit,
    ), problem.size


def _agreement(choice: Ints, size: int, infinite: float, kind: np.dtype) -> Costs:
    table = np.full((choice.size, size), infinite, dtype=kind)
    table[np.arange(choice.size), choice] = 0
    return table.ravel()

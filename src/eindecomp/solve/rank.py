"""A second cost that decides between choices of equal cost."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.solve.bounding import AT_SIGHT, folded
from eindecomp.solve.eliminate import WORK, eliminate
from eindecomp.solve.minimize import minimize
from eindecomp.solve.problem import EXACT, INFINITE, Factor, Problem
from eindecomp.solve.run import Run

if TYPE_CHECKING:
    from eindecomp.solve.problem import Costs, Ints
    from eindecomp.solve.solution import Solution

_COARSEST = 1 << 8  # steps of the second cost, below which it says nothing


def minimize_ranked(problem: Problem, second: Ints, *, time_limit: float = 60) -> Solution:
    """As `minimize` by the exact method; of the cheapest choices, one with the least second cost.

    `second` is a unary cost, not negative, packed as `problem.unary` is. Where elimination would
    need tables beyond the cap it does not count: nothing is to be proved of it.
    """
    start = monotonic()
    ranked = rank(problem, second)
    if ranked is not None:
        run = Run(ranked, start, start + time_limit, None)
        network, unfold = folded(run)
        choice = eliminate(network, run.deadline, WORK if problem.factors else AT_SIGHT)
        if choice is not None:
            run.enter("eliminate")
            run.offer(unfold(choice))
            found = run.solution(proved=True)
            cost = problem.cost_of(found.choice)
            return replace(found, cost=cost, bound=cost)
    left = max(start + time_limit - monotonic(), 0)
    return minimize(problem, method="exact", time_limit=left, keep_on_interrupt=False)


def rank(problem: Problem, second: Ints) -> Problem | None:
    """A problem whose cheapest choices are this one's with the least second cost.

    Costs are this one's times a number that all second costs together do not reach. Sums stay exact
    in float64: where there is no room for all digits of the second cost, its last ones are dropped.
    None where too few would be left, or costs are not integers.
    """
    if not problem.integral or not problem.nonnegative or not problem.size:
        return None
    unit = _unit(problem)
    starts = problem.offset[:-1]
    least = np.repeat(np.minimum.reduceat(second, starts), problem.domains)
    spread = second - least
    room = int(EXACT / 4 / (problem.magnitude / unit + 1))
    digits = 0
    while (total := int(np.maximum.reduceat(spread >> digits, starts).sum())) >= room:
        if room < _COARSEST:
            return None
        digits += 1
    times = (total + 1, unit)
    unary = _scaled(problem.unary, *times)
    finite = unary != INFINITE
    unary[finite] += (spread >> digits)[finite]
    tables = {id(f.table): f.table for f in problem.factors}
    larger = {key: _scaled(table, *times) for key, table in tables.items()}
    return Problem(
        offset=problem.offset,
        unary=unary,
        edges=problem.edges,
        table_of=problem.table_of,
        table_offset=problem.table_offset,
        tables=_scaled(problem.tables, *times),
        factors=tuple(Factor(f.scope, larger[id(f.table)]) for f in problem.factors),
    )


def _unit(problem: Problem) -> int:
    """The largest power of two that divides all costs."""
    bits = 0
    tables = {id(f.table): f.table for f in problem.factors}.values()
    for costs in (problem.unary, problem.tables, *tables):
        bits |= int(np.bitwise_or.reduce(np.where(costs == INFINITE, 0, costs), axis=None))
    return bits & -bits or 1


def _scaled(costs: Costs, times: int, unit: int) -> Costs:
    return np.where(costs == INFINITE, INFINITE, costs // unit * times)

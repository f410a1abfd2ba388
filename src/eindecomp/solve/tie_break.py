"""Minimising a second cost among the choices of least cost: a lexicographic objective."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.solve import budgets
from eindecomp.solve.clock import planning_time
from eindecomp.solve.exact.eliminate import eliminate, work_allowed
from eindecomp.solve.exact.fold import fold_all
from eindecomp.solve.minimize import minimize
from eindecomp.solve.problem.arrays import EXACT, INFINITE, Factor
from eindecomp.solve.problem.problem import Problem
from eindecomp.solve.run import Run

if TYPE_CHECKING:
    from eindecomp.solve.problem.arrays import Costs, Ints
    from eindecomp.solve.run import Solution


def minimize_ranked(problem: Problem, second: Ints, *, time_limit: float = 60) -> Solution:
    """As `minimize` with "exact", but of the cheapest choices one with the least second cost.

    `second` holds unary costs, none negative, packed as `problem.unary` is. It is ignored if
    elimination would need tables larger than the cap.
    """
    start = planning_time()
    ranked = rank(problem, second)
    if ranked is not None:
        run = Run(ranked, start, start + time_limit, None)
        network, unfold = fold_all(run)
        choice = eliminate(network, run.deadline, work_allowed(problem))
        if choice is not None:
            run.enter("eliminate")
            run.offer(unfold(choice))
            solution = run.solution(proved=True)
            cost = problem.cost_of(solution.choice)
            return replace(solution, cost=cost, bound=cost)
    left = max(start + time_limit - planning_time(), 0)
    return minimize(problem, method="exact", time_limit=left, keep_on_interrupt=False)


def rank(problem: Problem, second: Ints) -> Problem | None:
    """The problem whose optimum is, of this problem's optima, one with the least second cost.

    Its costs are this problem's, times a number larger than any sum of second costs, plus the
    second costs. Sums stay exact in float64: if there is no room for all digits of the second
    costs, their last digits are dropped. None if too few would be left, or if costs are not
    integers.
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
        if room < budgets.SECOND_COST_VALUES:
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

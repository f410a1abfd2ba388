"""`least_usage`: a choice that uses the least at its fullest step, whatever it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eindecomp.errors import InfeasibleError, UnsolvedError
from eindecomp.solve import budgets
from eindecomp.solve.clock import has_passed, planning_time
from eindecomp.solve.minimize import minimize
from eindecomp.solve.problem.arrays import INFINITE, Costs, Factor, Ints, is_infinite
from eindecomp.solve.problem.problem import Problem


def least_usage(problem: Problem, deadline: float) -> Ints:
    """A choice below ∞ whose largest usage is the least that is found in time.

    It begins with the least sum of usages over all steps, without a limit. Then limits between what
    fits and what does not are tried, where any choice that fits is as good as another.

    Raises:
        InfeasibleError: Every choice costs ∞.
        UnsolvedError: No choice was found in time.

    Examples:
        >>> toy = Problem.of([[1, 5], [0, 0]], usage=[[4, 2], [3, 1]], intervals=[[0, 1], [0, 1]])
        >>> least_usage(replace(toy, limit=9), planning_time() + 10).tolist()
        [1, 1]
    """
    usage, intervals = problem.usage, problem.intervals
    assert usage is not None  # noqa: S101 - the caller has a limit
    assert intervals is not None  # noqa: S101 - as above
    steps = np.repeat(intervals[:, 1] - intervals[:, 0], problem.domains)
    free = _priced(problem, usage * steps)
    left = max(budgets.USAGE_SHARE * (deadline - planning_time()), budgets.LEAST_USAGE)
    unlimited = replace(free, usage=None, intervals=None, limit=None)
    choice = minimize(unlimited, time_limit=left, keep_on_interrupt=False).choice
    low, held = 0, _held(problem, choice)
    any_price = _priced(problem, np.zeros_like(usage))
    while held - low > max(held * budgets.USAGE_PRECISION, 1) and not has_passed(deadline):
        tried = (low + held) // 2
        left = budgets.USAGE_SHARE * (deadline - planning_time())
        try:
            limited = replace(any_price, limit=tried)
            choice = minimize(limited, time_limit=max(left, 0), keep_on_interrupt=False).choice
            held = _held(problem, choice)
        except (InfeasibleError, UnsolvedError):
            low = tried
    return choice


def _held(problem: Problem, choice: Ints) -> int:
    return int(problem.usage_of(choice).max(initial=0))


def _priced(problem: Problem, unary: Costs) -> Problem:
    """The problem at other prices: these for choices, and nothing for what goes together."""
    tables = {id(factor.table): _free(factor.table) for factor in problem.factors}
    priced = np.where(is_infinite(problem.unary), INFINITE, unary)
    factors = tuple(Factor(own.scope, tables[id(own.table)]) for own in problem.factors)
    return replace(problem, unary=priced, tables=_free(problem.tables), factors=factors)


def _free(costs: Costs) -> Costs:
    return np.where(is_infinite(costs), INFINITE, 0)

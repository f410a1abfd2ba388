"""`minimize`: which methods are tried, in which order.

Each stage settles the problem, or hands something smaller or a better bound to the next one:

1. fold repeated layers                      `exact/fold.py`
2. eliminate, if that is little work         `exact/eliminate.py`
3. bound with tables of limited size         `exact/bounding.py`
4. reduce to a smaller core                  `search/reduce.py`
5. eliminate the core                        `exact/eliminate.py`
6. search the core until the gap is closed   `search/close_gap.py`

A problem with a usage limit starts at 4, and takes 5 only if the limit can no longer bind. Modules
with compiled loops take a while to load and most plans never need them, so they are imported where
they are called.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.errors import InfeasibleError, ProblemError, UnsolvedError
from eindecomp.solve import budgets
from eindecomp.solve.clock import interruptible, planning_time, watch_compilation
from eindecomp.solve.exact.bounding import Bounding
from eindecomp.solve.exact.eliminate import eliminate, work_allowed
from eindecomp.solve.exact.fold import fold_all
from eindecomp.solve.problem.arrays import EXACT, INFINITE, Costs, Factor, Ints
from eindecomp.solve.problem.cost_network import CostNetwork
from eindecomp.solve.problem.problem import Problem
from eindecomp.solve.run import Lift, Progress, Run, Solution

if TYPE_CHECKING:
    from eindecomp.solve.problem.core import Core


METHODS = ("auto", "exact", "search")
_TOO_LARGE = "exact elimination would need tables larger than the cap"
_LIMIT_BINDS = "exact elimination cannot handle a usage limit that may bind"


def minimize(
    problem: Problem,
    *,
    method: str = "auto",
    time_limit: float = 60,
    seed: int = 0,
    on_event: Callable[[Progress], None] | None = None,
    keep_on_interrupt: bool = True,
) -> Solution:
    """The cheapest choice found in time, with a proved lower bound on the cost of any choice.

    The time limit does not include compiling the hot loops, which happens once on a machine.

    Args:
        problem: What to choose, such as `Problem.of([[3, 1]])`.
        method: `"auto"`, `"exact"` (elimination only) or `"search"` (no elimination).
        time_limit: Seconds, such as `60`.
        seed: That of the search's random numbers, such as `0`.
        on_event: Is called now and then with a `Progress`, such as `print`.
        keep_on_interrupt: Whether Ctrl-C ends a search as the time limit does, once a choice has
            been found; a second one raises `KeyboardInterrupt`. `False` always raises it, for
            callers that solve many problems in a row.

    Raises:
        InfeasibleError: There is no feasible choice.
        UnsolvedError: None was found in time; for "exact", the tables would not fit.

    Examples:
        >>> toy = Problem.of([[0, 3], [1, 0]], [(0, 1)], [[[5, 9], [0, 0]]])
        >>> solution = minimize(toy)
        >>> solution.choice.tolist(), solution.cost, solution.bound
        ([1, 1], 3, 3)
    """
    if not isinstance(problem, Problem):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ProblemError(f"minimize takes a Problem, not {type(problem).__name__}")
    if method not in METHODS:
        raise ProblemError(f"method {method!r} is none of {', '.join(METHODS)}")
    if not isinstance(time_limit, Real) or not time_limit >= 0:
        raise ProblemError(f"time_limit must be seconds, 0 or more, not {time_limit!r}")
    if not isinstance(seed, Integral) or seed < 0:
        raise ProblemError(f"seed must be an integer, 0 or more, not {seed!r}")
    if on_event is not None and not callable(on_event):
        raise ProblemError(f"on_event is a function that takes an event, not {on_event!r}")
    start = planning_time()
    run = Run(problem, start, start + time_limit, on_event)
    watch = nullcontext() if on_event is None else watch_compilation(run.set_compiling)
    with watch, interruptible(keep=keep_on_interrupt):
        return _minimize(run, method, time_limit, seed)


def _minimize(run: Run, method: str, time_limit: float, seed: int) -> Solution:
    """The strategy; see the module's docstring."""
    problem = run.problem
    if not problem.factors:
        run.raise_bound(problem.least)
    unfold: Lift = np.array
    if method != "search" and not problem.limited:
        network, unfold = fold_all(run)
        if (whole := _without_search(run, network, unfold, method, time_limit)) is not None:
            return whole
        if "fold" in run.stages:
            problem = network.to_problem(integral=problem.integral)
    try:
        core, lift = _reduce(run, problem, unfold)
    except UnsolvedError:
        if run.choice is None:
            raise
        return run.solution(proved=False)
    if core.size == 0:
        run.offer(lift(np.zeros(0, dtype=np.int64)))
        return run.solution(proved=True)
    if method != "search" and core.item_var.size == 0:
        run.enter("eliminate")
        choice = eliminate(core.network, run.deadline)
        if choice is not None:
            run.offer(lift(choice))
            return run.solution(proved=True)
    if method == "exact":
        raise UnsolvedError(_LIMIT_BINDS if core.item_var.size else _TOO_LARGE)
    from eindecomp.solve.search.close_gap import Incumbent, close_gap

    run.enter("search")
    incumbent = Incumbent(run.offer, run.raise_bound, run.problem.exact_in_floats, lift)
    return run.solution(proved=close_gap(core, incumbent, run.deadline, seed))


def _without_search(
    run: Run, network: CostNetwork, unfold: Lift, method: str, time_limit: float
) -> Solution | None:
    """The best choice by elimination or split tables; None where these do not find it."""
    problem = run.problem
    choice = eliminate(network, run.deadline, work_allowed(problem))
    if choice is not None:
        run.enter("eliminate")
        run.offer(unfold(choice))
        return run.solution(proved=True, summed=True)
    if problem.factors and method == "exact":
        raise UnsolvedError(_TOO_LARGE)
    if method == "auto":
        run.enter("split")
        until = run.start + budgets.BOUND_SHARE * time_limit
        Bounding(run, network, unfold).tighten(np.inf, until)
    return run.solution(proved=True) if run.bound == run.cost else None


def _reduce(run: Run, problem: Problem, unfold: Lift) -> tuple[Core, Lift]:
    """The core of a problem, and the way back from its choices to those of the run's problem."""
    from eindecomp.solve.problem.core import core_of, pairwise
    from eindecomp.solve.search.reduce import reduce_core

    run.enter("reduce")
    without_factors, size = pairwise(problem)
    reduced = reduce_core(core_of(without_factors), run.deadline)
    _check_capacity(run, reduced.core)

    def lift(choice: Ints) -> Ints:
        return unfold(reduced.lift(choice)[:size])

    return reduced.core, lift


def _check_capacity(run: Run, core: Core) -> None:
    """Note the tightest step; raise if even the least usages exceed the limit there."""
    if core.capacity.size == 0:
        return
    t = int(np.argmin(core.capacity))
    run.tightest = int(core.step[t])
    if core.capacity[t] < 0:
        excess = float(-core.capacity[t])
        message = f"time step {run.tightest} is over the limit by at least {excess:g}"
        raise InfeasibleError(message, run.tightest, excess)


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
    tables = {id(f.table): f.table for f in problem.factors}
    bits = 0
    for costs in (problem.unary, problem.tables, *tables.values()):
        bits |= int(np.bitwise_or.reduce(np.where(costs == INFINITE, 0, costs), axis=None))
    unit = bits & -bits or 1  # the largest power of two that divides all costs
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
    larger = {key: _scaled(table, *times) for key, table in tables.items()}
    factors = tuple(Factor(f.scope, larger[id(f.table)]) for f in problem.factors)
    return replace(problem, unary=unary, tables=_scaled(problem.tables, *times), factors=factors)


def _scaled(costs: Costs, times: int, unit: int) -> Costs:
    return np.where(costs == INFINITE, INFINITE, costs // unit * times)

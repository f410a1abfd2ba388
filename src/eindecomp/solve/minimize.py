"""`minimize`: the strategy that picks and chains the methods."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from time import monotonic

import numpy as np

from eindecomp.errors import ProblemError, UnsolvedError
from eindecomp.solve.bounding import AT_SIGHT, Bounding, folded
from eindecomp.solve.eliminate import WORK, eliminate
from eindecomp.solve.problem import Problem
from eindecomp.solve.run import Lift, Run
from eindecomp.solve.solution import Progress, Solution

METHODS = ("auto", "exact", "search")

_SPLIT = 0.4  # the part of the time after which no further bound is tried before searching


def minimize(
    problem: Problem,
    *,
    method: str = "auto",
    time_limit: float = 60,
    seed: int = 0,
    on_event: Callable[[Progress], None] | None = None,
    keep_on_interrupt: bool = True,
) -> Solution:
    """The cheapest choice that can be found in time, with a proved bound on what any choice costs.

    `method` is "auto", "exact" (elimination only; raises `UnsolvedError` if the tables would not
    fit) or "search" (no elimination). Raises `InfeasibleError` if there is no feasible choice. The
    time limit does not count the hot loops' compilation, once on a machine. Ctrl-C ends a search as
    the time limit does, once it has found a choice; without `keep_on_interrupt` it always raises
    `KeyboardInterrupt`, for callers to whom one solve is a step of many.
    """
    _check_arguments(problem, method, time_limit, seed)
    start = monotonic()
    run = Run(problem, start, start + time_limit, on_event)
    try:
        return _minimize(run, method, time_limit, seed)
    except KeyboardInterrupt:
        # Whoever interrupts a search wants what it has found, if it has found anything.
        if run.choice is None or not keep_on_interrupt:
            raise
        return run.solution(proved=False)


def _minimize(run: Run, method: str, time_limit: float, seed: int) -> Solution:
    problem = run.problem
    if not problem.factors:
        run.raise_bound(problem.least)
    unfold: Lift = np.array
    if method != "search" and not problem.limited:
        network, unfold = folded(run)
        # What is larger than a pair is at its best in elimination, so that may take its time.
        choice = eliminate(network, run.deadline, WORK if problem.factors else AT_SIGHT)
        if choice is not None:
            run.enter("eliminate")
            run.offer(unfold(choice))
            return run.solution(proved=True, summed=True)
        if problem.factors and method == "exact":
            raise UnsolvedError("exact elimination would need tables beyond the cap")
        if method == "auto":
            run.enter("split")
            Bounding(run, network, unfold).tighten(np.inf, run.start + _SPLIT * time_limit)
            if run.bound == run.cost:
                return run.solution(proved=True)
        if "fold" in run.stages:
            problem = network.problem(integral=problem.integral)
    # Loaded here because most plans never need it, and its compiled loops take a while to load.
    from eindecomp.solve.reduced import minimize_reduced

    return minimize_reduced(run, problem, unfold, method, seed)


def _check_arguments(problem: Problem, method: str, time_limit: float, seed: int) -> None:
    if not isinstance(problem, Problem):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ProblemError(f"minimize takes a Problem, not {type(problem).__name__}")
    if method not in METHODS:
        raise ProblemError(f"method {method!r} is none of {', '.join(METHODS)}")
    if not isinstance(time_limit, Real) or not time_limit >= 0:
        raise ProblemError(f"time_limit must be seconds, 0 or more, not {time_limit!r}")
    if not isinstance(seed, Integral) or seed < 0:
        raise ProblemError(f"seed must be an integer, 0 or more, not {seed!r}")

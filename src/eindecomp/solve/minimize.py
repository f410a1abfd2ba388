"""`minimize`: the strategy that picks and chains the methods."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from eindecomp.errors import ProblemError, UnsolvedError
from eindecomp.solve.eliminate import WORK, eliminate
from eindecomp.solve.fold import Fold, fold
from eindecomp.solve.network import Network, share_equal
from eindecomp.solve.problem import Ints, Problem
from eindecomp.solve.run import Run
from eindecomp.solve.solution import Progress, Solution

METHODS = ("auto", "exact", "search")

_AT_SIGHT = 1 << 31  # cells of an elimination that no reduction comes before


def minimize(
    problem: Problem,
    *,
    method: str = "auto",
    time_limit: float = 60,
    seed: int = 0,
    on_event: Callable[[Progress], None] | None = None,
) -> Solution:
    """The cheapest choice that can be found in time, with a proved bound on what any choice costs.

    `method` is "auto", "exact" (elimination only; raises `UnsolvedError` if the tables would not
    fit) or "search" (no elimination). Raises `InfeasibleError` if there is no feasible choice. The
    time limit does not count the hot loops' compilation, once on a machine. Ctrl-C ends a search as
    the time limit does, once it has found a choice.
    """
    _check_arguments(problem, method, time_limit, seed)
    start = monotonic()
    run = Run(problem, start, start + time_limit, on_event)
    if not problem.factors:
        run.raise_bound(problem.least)
    folds: list[Fold] = []

    def unfold(choice: Ints) -> Ints:
        for step in reversed(folds):
            choice = step.lift(choice)
        return choice

    if method != "search" and not problem.limited:
        network = _folded(run, folds)
        # What is larger than a pair is at its best in elimination, so that may take its time.
        choice = eliminate(network, run.deadline, WORK if problem.factors else _AT_SIGHT)
        if choice is not None:
            run.enter("eliminate")
            run.offer(unfold(choice))
            return run.solution(proved=True, summed=True)
        if problem.factors and method == "exact":
            raise UnsolvedError("exact elimination would need tables beyond the cap")
        if folds:
            problem = network.problem(integral=problem.integral)
    # Loaded here because most plans never need it, and its compiled loops take a while to load.
    from eindecomp.solve.reduced import minimize_reduced

    return minimize_reduced(run, problem, unfold, method, seed)


def _check_arguments(problem: Problem, method: str, time_limit: float, seed: int) -> None:
    if not isinstance(problem, Problem):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ProblemError(f"minimize takes a Problem, not {type(problem).__name__}")
    if method not in METHODS:
        raise ProblemError(f"method {method!r} is none of {', '.join(METHODS)}")
    if not isinstance(time_limit, int | float) or not time_limit >= 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ProblemError(f"time_limit must be seconds, 0 or more, not {time_limit!r}")
    if not isinstance(seed, int) or seed < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ProblemError(f"seed must be an integer, 0 or more, not {seed!r}")


def _folded(run: Run, folds: list[Fold]) -> Network:
    """The problem's network after folding run after run of repeated blocks; notes the folds."""
    problem = run.problem
    network = share_equal(Network.of_problem(problem))
    if problem.integral and not problem.exact_in_floats:
        return network
    while (folded := fold(network, run.deadline)) is not None:
        run.enter("fold")
        folds.append(folded)
        network = folded.network
    return network

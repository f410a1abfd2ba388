"""`minimize`: the strategy that picks and chains the methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

import numpy as np

from eindecomp.errors import InfeasibleError, ProblemError, UnsolvedError
from eindecomp.solve.best import Best
from eindecomp.solve.close import close_gap
from eindecomp.solve.core import Core, core_of
from eindecomp.solve.eliminate import eliminate
from eindecomp.solve.fold import Fold, fold, share_tables
from eindecomp.solve.pairwise import pairwise
from eindecomp.solve.problem import Ints, Problem
from eindecomp.solve.reduce import reduce_core
from eindecomp.solve.solution import Progress, Solution
from eindecomp.solve.toulbar import race
from eindecomp.solve.warm_up import warm_up_reductions, warm_up_search

_ROUNDING = 1e-9

METHODS = ("auto", "exact", "search")


@dataclass(slots=True)
class _Run:
    """One call of `minimize`: its problem, clock and what it has found."""

    problem: Problem
    start: float
    deadline: float
    on_event: Callable[[Progress], None] | None
    choice: Ints | None = None
    cost: int | float = np.inf
    bound: int | float = -np.inf
    stage: str = "read"
    stages: list[str] = field(default_factory=list[str])

    def enter(self, stage: str) -> None:
        self.stage = stage
        self.stages.append(stage)
        self.tell()

    def tell(self) -> None:
        if self.on_event is not None:
            seconds = monotonic() - self.start
            self.on_event(Progress(seconds, self.stage, self.cost, self.bound))

    def pause(self, work: Callable[[], None]) -> None:
        """Do work that is not the problem's own, with the clock stopped."""
        before = monotonic()
        work()
        self.start += monotonic() - before
        self.deadline += monotonic() - before

    def offer(self, choice: Ints) -> None:
        """Take a choice of the problem's own variables if it is feasible and better."""
        cost = self.problem.cost_of(choice)
        if cost < self.cost and self.problem.feasible(choice):
            self.choice, self.cost = choice, cost
            self.tell()

    def raise_bound(self, bound: float) -> None:
        """Take a proved bound; for integer costs the next integer is one too."""
        if not np.isfinite(bound):
            return
        proved = int(np.ceil(bound)) if self.problem.integral else float(bound)
        if proved > self.bound:
            self.bound = min(proved, self.cost)
            self.tell()

    def solution(self, core: Core, proved: bool) -> Solution:
        """The best choice, optimal if `proved`; or the error that there is none."""
        if self.choice is None:
            raise _no_choice(core, proved)
        bound = min(self.bound, self.cost)
        if proved:
            # What float64 cannot hold exactly is optimal up to rounding, and the bound says so.
            exact = self.problem.exact_in_floats
            rounding = 0 if exact else _ROUNDING * self.problem.magnitude
            bound = self.cost if exact else max(bound, self.cost - rounding)
            if self.problem.integral:
                # Integers beyond float64 are only optimal where the bound itself meets them.
                bound, proved = int(np.floor(bound)), False
        proved = proved or bound == self.cost
        method, seconds = "+".join(self.stages), monotonic() - self.start
        return Solution(self.choice, self.cost, bound, proved, method, seconds)


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
    time limit does not count the hot loops' compilation, once on a machine.
    """
    if method not in METHODS:
        raise ProblemError(f"method {method!r} is none of {', '.join(METHODS)}")
    warm_up_reductions()
    start = monotonic()
    run = _Run(problem, start, start + time_limit, on_event)
    if not problem.factors:
        run.raise_bound(problem.least)
    flat, size = pairwise(problem)
    folds = _fold_all(run, flat)
    run.enter("reduce")
    reduced = reduce_core(core_of(folds[-1].problem if folds else flat), run.deadline)
    core = reduced.core
    _refuse_overfull(core)

    def lift(choice: Ints) -> Ints:
        choice = reduced.lift(choice)
        for folded in reversed(folds):
            choice = folded.lift(choice)
        return choice[:size]

    if core.size == 0:
        run.offer(lift(np.zeros(0, dtype=np.int64)))
        return run.solution(core, proved=True)
    if method != "search" and core.item_var.size == 0:
        run.enter("eliminate")
        choice = eliminate(core, run.deadline)
        if choice is not None:
            run.offer(lift(choice))
            return run.solution(core, proved=True)
    if method == "exact":
        raise UnsolvedError("exact elimination would need tables beyond the cap")
    run.enter("search")
    run.pause(warm_up_search)
    proved = _search(run, core, lift, seed)
    return run.solution(core, proved)


def _fold_all(run: _Run, problem: Problem) -> list[Fold]:
    """Fold run after run of repeated blocks."""
    folds: list[Fold] = []
    if not problem.limited:
        problem = share_tables(problem)
    while (folded := fold(problem, run.deadline)) is not None:
        run.enter("fold")
        folds.append(folded)
        problem = folded.problem
    return folds


def _search(run: _Run, core: Core, lift: Callable[[Ints], Ints], seed: int) -> bool:
    exact = run.problem.exact_in_floats
    with race(core, exact=exact) as rival:

        def rivals_choice() -> Ints | None:
            found = rival.result()
            return None if found is None else lift(found)

        best = Best(run.offer, run.raise_bound, exact, lift, rival=rivals_choice)
        return close_gap(core, best, run.deadline, seed)


def _refuse_overfull(core: Core) -> None:
    """Raise if at some step even the least usages exceed the limit."""
    if core.capacity.size and core.capacity.min() < 0:
        t = int(np.argmin(core.capacity))
        raise InfeasibleError(
            f"time step {int(core.step[t])} is over by at least {-core.capacity[t]:g}"
        )


def _no_choice(core: Core, proved: bool) -> Exception:
    tight = ""
    if core.capacity.size:
        tight = f"; the tightest time step is {int(core.step[int(np.argmin(core.capacity))])}"
    if proved:
        return InfeasibleError(f"every choice costs ∞ or exceeds the usage limit{tight}")
    return UnsolvedError(f"no feasible choice found in time{tight}")

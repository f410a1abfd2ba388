"""One call of `minimize`: its problem, its clock, and what it has found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

import numpy as np

from eindecomp.errors import InfeasibleError, UnsolvedError
from eindecomp.solve.problem import Ints, Problem
from eindecomp.solve.solution import Progress, Solution

ROUNDING = 1e-9
Lift = Callable[[Ints], Ints]  # from the choices of a smaller problem to those of the run's own


@dataclass(slots=True)
class Run:
    """The record that the methods write to; mutable, one per call."""

    problem: Problem
    start: float
    deadline: float
    on_event: Callable[[Progress], None] | None
    choice: Ints | None = None
    cost: int | float = np.inf
    bound: int | float = -np.inf
    stage: str = "read"
    stages: list[str] = field(default_factory=list[str])
    tightest: int | None = None
    """The time step with the least capacity left, once that is known."""

    def enter(self, stage: str) -> None:
        """Say which method is at work from now on."""
        self.stage = stage
        self.stages.append(stage)
        self.tell()

    def tell(self) -> None:
        """Report where things stand."""
        if self.on_event is not None:
            seconds = monotonic() - self.start
            self.on_event(Progress(seconds, self.stage, self.cost, self.bound))

    def compile(self, work: Callable[[], None]) -> None:
        """Do work that is not the problem's own, with the clock stopped."""
        before, stage = monotonic(), self.stage
        self.stage = "compile"
        self.tell()
        work()
        self.stage = stage
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

    def solution(self, proved: bool, *, summed: bool = False) -> Solution:
        """The best choice, optimal if `proved`; or the error that there is none.

        `summed` says that costs were only added up and compared, which loses less to rounding.
        """
        if self.choice is None:
            raise self._no_choice(proved)
        bound = min(self.bound, self.cost)
        if proved:
            # What float64 cannot hold exactly is optimal up to rounding, and the bound says so.
            exact = self.problem.exact_in_floats
            # Sums of costs that are not negative are off by no more than a part of themselves.
            relative = summed and self.problem.nonnegative
            scale = abs(self.cost) if relative else self.problem.magnitude
            rounding = 0 if exact else ROUNDING * scale
            bound = self.cost if exact else max(bound, self.cost - rounding)
            if self.problem.integral:
                # Integers beyond float64 are only optimal where the bound itself meets them.
                bound, proved = int(np.floor(bound)), False
        proved = proved or bound == self.cost
        method, seconds = "+".join(self.stages), monotonic() - self.start
        return Solution(self.choice, self.cost, bound, proved, method, seconds)

    def _no_choice(self, proved: bool) -> Exception:
        tight = "" if self.tightest is None else f"; the tightest time step is {self.tightest}"
        if proved:
            message = f"every choice costs ∞ or exceeds the usage limit{tight}"
            return InfeasibleError(message, self.tightest)
        return UnsolvedError(f"no feasible choice found in time{tight}")

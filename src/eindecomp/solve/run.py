"""One call of `minimize`: its problem, its clock, and its best choice and bound so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from eindecomp.errors import InfeasibleError, UnsolvedError
from eindecomp.solve.clock import planning_time
from eindecomp.solve.problem.arrays import Ints
from eindecomp.solve.problem.problem import Problem
from eindecomp.solve.solution import Progress, Solution

ROUNDING = 1e-9
Lift = Callable[[Ints], Ints]  # from the choices of a smaller problem to those of the run's own


@dataclass(slots=True)
class Run:
    """The record that all stages write to; mutable, one per call."""

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
    compiling: int = 0
    """How many compilations are under way, one within the other."""

    def enter(self, stage: str) -> None:
        """Note that a new stage begins."""
        self.stage = stage
        self.stages.append(stage)
        self.tell()

    def tell(self) -> None:
        """Report the stage, cost and bound."""
        if self.on_event is not None:
            seconds = planning_time() - self.start
            stage = "compile" if self.compiling else self.stage
            self.on_event(Progress(seconds, stage, self.cost, self.bound))

    def set_compiling(self, active: bool) -> None:
        """Note that a compilation starts or has ended; reports the outermost one."""
        was_compiling = self.compiling > 0
        self.compiling += 1 if active else -1
        if was_compiling != (self.compiling > 0):
            self.tell()

    def offer(self, choice: Ints) -> None:
        """Take a choice of the run's own problem if it is feasible and better."""
        cost = self.problem.cost_of(choice)
        if cost < self.cost and self.problem.feasible(choice):
            self.choice, self.cost = choice, cost
            self.tell()

    def raise_bound(self, bound: float) -> None:
        """Take a proved bound, rounded up if costs are integers."""
        if not np.isfinite(bound):
            return
        proved = int(np.ceil(bound)) if self.problem.integral else float(bound)
        if proved > self.bound:
            self.bound = min(proved, self.cost)
            self.tell()

    def solution(self, proved: bool, *, summed: bool = False) -> Solution:
        """The best choice, optimal if `proved`; raises if there is none.

        `summed` says that costs were only added and compared, which loses less to rounding.
        """
        if self.choice is None:
            raise self._no_choice(proved)
        bound = min(self.bound, self.cost)
        if proved:
            # Costs that float64 cannot hold exactly are optimal up to rounding: lower the bound.
            exact = self.problem.exact_in_floats
            # The error of a sum of nonnegative costs is relative to the sum itself.
            relative = summed and self.problem.nonnegative
            scale = abs(self.cost) if relative else self.problem.magnitude
            rounding = 0 if exact else ROUNDING * scale
            bound = self.cost if exact else max(bound, self.cost - rounding)
            if self.problem.integral:
                # Integers that float64 cannot hold are only optimal if the bound equals the cost.
                bound, proved = int(np.floor(bound)), False
        proved = proved or bound == self.cost
        method, seconds = "+".join(self.stages), planning_time() - self.start
        return Solution(self.choice, self.cost, bound, proved, method, seconds)

    def _no_choice(self, proved: bool) -> Exception:
        tight = "" if self.tightest is None else f"; the tightest time step is {self.tightest}"
        if proved:
            message = f"every choice costs ∞ or exceeds the usage limit{tight}"
            return InfeasibleError(message, self.tightest)
        return UnsolvedError(f"no feasible choice found in time{tight}")

"""One call of `minimize`: what it knows so far, reports on the way, and returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from eindecomp.errors import InfeasibleError, UnsolvedError
from eindecomp.solve import budgets
from eindecomp.solve.clock import seconds_since
from eindecomp.solve.problem.arrays import Ints
from eindecomp.solve.problem.problem import Problem

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
            seconds = seconds_since(self.start)
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
            tight = "" if self.tightest is None else f"; the tightest time step is {self.tightest}"
            if proved:
                message = f"every choice costs ∞ or exceeds the usage limit{tight}"
                raise InfeasibleError(message, self.tightest)
            raise UnsolvedError(f"no feasible choice found in time{tight}")
        bound = min(self.bound, self.cost)
        if proved:
            # Costs that float64 cannot hold exactly are optimal up to rounding: lower the bound.
            exact = self.problem.exact_in_floats
            # The error of a sum of nonnegative costs is relative to the sum itself.
            relative = summed and self.problem.nonnegative
            scale = abs(self.cost) if relative else self.problem.magnitude
            rounding = 0 if exact else budgets.ROUNDING * scale
            bound = self.cost if exact else max(bound, self.cost - rounding)
            if self.problem.integral:
                # Integers that float64 cannot hold are only optimal if the bound equals the cost.
                bound, proved = int(np.floor(bound)), False
        proved = proved or bound == self.cost
        method, seconds = "+".join(self.stages), seconds_since(self.start)
        return Solution(self.choice, self.cost, bound, proved, method, seconds)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Solution:
    """A choice, its cost, and a proved lower bound on the cost of any choice.

    Attributes:
        choice: A choice for each variable, such as `array([1, 0])`.
        cost: What it costs, such as `3`.
        bound: What any choice costs at least, such as `3`.
        optimal: Whether no choice is cheaper, such as `True`.
        method: The stages that found it, such as `"eliminate"`.
        seconds: How long that took, such as `0.1`.

    Examples:
        >>> import eindecomp as ed
        >>> ed.solve.minimize(ed.solve.Problem.of([[3, 1]]))
        <Solution of 1 variables: cost 1, optimal>
    """

    choice: Ints
    cost: int | float
    bound: int | float
    optimal: bool
    method: str
    seconds: float

    @property
    def gap(self) -> float:
        """How far the cost may be above the optimum, relative to the larger of cost and bound."""
        if self.cost == self.bound:
            return 0.0
        return float((self.cost - self.bound) / max(abs(self.cost), abs(self.bound)))

    def __repr__(self) -> str:
        proved = "optimal" if self.optimal else f"bound {self.bound}"
        return f"<Solution of {self.choice.size} variables: cost {self.cost}, {proved}>"


@dataclass(frozen=True, slots=True)
class Progress:
    """What `minimize` and `ed.plan` report while they work.

    Attributes:
        seconds: The time so far, such as `1.5`.
        stage: What is done, such as `"search"`.
        cost: That of the best choice; `inf` until a feasible one is known.
        bound: What any choice costs at least, such as `10`.

    Examples:
        >>> Progress(1.5, "search", 12, 10).cost
        12
    """

    seconds: float
    stage: str
    cost: int | float
    bound: int | float

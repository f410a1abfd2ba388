"""A lower bound that is raised step by step: by elimination, then by larger mini-buckets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.solve.bound.mini_buckets import bound_by_mini_buckets
from eindecomp.solve.clock import planning_time
from eindecomp.solve.exact.eliminate import QUICK_WORK, WORK, eliminate
from eindecomp.solve.exact.fold import fold_all
from eindecomp.solve.problem.cost_network import CostNetwork
from eindecomp.solve.run import ROUNDING, Lift, Run

if TYPE_CHECKING:
    from eindecomp.solve.bound.cost_shifting import Term
    from eindecomp.solve.problem.arrays import Floats, Ints
    from eindecomp.solve.problem.problem import Problem

LEVELS = tuple(1 << k for k in (18, 21, 23, 25))
"""The most cells of a joined table, in one attempt after the other."""
_HUGE = 2.0**44  # stands for ∞ among integers: sums of hundreds of these are exact


@dataclass(slots=True)
class Bounding:
    """A bound on a problem, and the best choice met on the way; mutable: `tighten` raises it."""

    run: Run
    network: CostNetwork
    unfold: Lift
    levels: list[int] = field(default_factory=lambda: list(LEVELS))
    terms: list[Term] | None = None

    @staticmethod
    def begin(problem: Problem, deadline: float, work: int = WORK) -> Bounding:
        """Fold only: with few choices, mini-buckets often prove the optimum at once."""
        run = Run(problem, planning_time(), deadline, None)
        return Bounding(run, *fold_all(run, work))

    @staticmethod
    def of(problem: Problem, deadline: float) -> Bounding:
        """Fold, and eliminate if that is affordable."""
        bounding = Bounding.begin(problem, deadline)
        run = bounding.run
        # Networks that fold are narrow, so that elimination succeeds if it is given time.
        work = WORK if "fold" in run.stages else QUICK_WORK
        choice = eliminate(bounding.network, deadline, work)
        if choice is not None:
            run.offer(bounding.unfold(choice))
            run.bound = run.solution(proved=True, summed=True).bound
            bounding.levels = []
        return bounding

    @property
    def value(self) -> float:
        """The bound: no choice costs less."""
        return self.run.bound

    @property
    def choice(self) -> Ints | None:
        """The cheapest choice met on the way, if any."""
        return self.run.choice

    @property
    def solved(self) -> bool:
        """Whether that choice is optimal."""
        return self.run.bound == self.run.cost

    def tighten(self, goal: float, deadline: float, levels: int = len(LEVELS)) -> None:
        """Raise the bound with larger and larger tables, until the goal is met or time is up."""
        run = self.run
        problem = run.problem
        goal = min(goal, run.cost)
        whole = problem.exact_in_floats and self._largest <= _HUGE
        while self.levels and levels and run.bound < goal and planning_time() < deadline:
            if self.terms is None:
                self.terms = self._terms(whole)
                largest = max((term[0][1].size for term in self.terms), default=0)
                # A cap below the largest given table joins nothing, so the bound would not rise.
                self.levels[1:] = [cells for cells in self.levels[1:] if cells > largest]
            cells = self.levels.pop(0)
            bound = bound_by_mini_buckets(
                self.network.sizes, self.terms, cells, deadline, integral=whole
            )
            if bound is None:
                return
            if bound.choice is not None:
                run.offer(self.unfold(bound.choice))
            run.raise_bound(bound.value - (0 if whole else ROUNDING * problem.magnitude))
            if bound.exact:
                self.levels.clear()
            goal, levels = min(goal, run.cost), levels - 1

    @property
    def _largest(self) -> float:
        """The largest finite cost."""
        tables = {id(table): table for _, table in self.network.tables}.values()
        return max((t[np.isfinite(t)].max(initial=0) for t in tables), default=0.0)

    def _terms(self, integral: bool) -> list[Term]:
        # Imported here because its compiled loops take a while to load and elimination needs none.
        from eindecomp.solve.bound.cost_shifting import shift_costs

        huge = self.run.problem.magnitude + 1
        huge = min(huge, _HUGE) if integral else huge
        return shift_costs(_finite(self.network, huge), integral=integral)


def _finite(network: CostNetwork, huge: float) -> CostNetwork:
    """The network with all costs above `huge`, among them ∞, lowered to it."""
    kept: dict[int, Floats] = {}
    for _, table in network.tables:
        if id(table) not in kept:
            kept[id(table)] = np.minimum(table, huge)
    return CostNetwork(network.sizes, [(scope, kept[id(table)]) for scope, table in network.tables])

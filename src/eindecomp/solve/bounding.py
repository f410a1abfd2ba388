"""A lower bound that is raised as long as it is worth the time: elimination, then split tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.solve.eliminate import WORK, eliminate
from eindecomp.solve.fold import Fold, fold
from eindecomp.solve.network import Network, share_equal
from eindecomp.solve.run import ROUNDING, Lift, Run
from eindecomp.solve.split import bound_by_splitting

if TYPE_CHECKING:
    from eindecomp.solve.problem import Floats, Ints, Problem
    from eindecomp.solve.shift import Term

AT_SIGHT = 1 << 31  # cells of an elimination that no reduction comes before
LEVELS = tuple(1 << k for k in (18, 21, 23, 25))  # cells of the largest joined table
_HUGE = 2.0**44  # stands for ∞ among integers: sums of hundreds of these are exact


@dataclass(slots=True)
class Bounding:
    """What is known of a problem without searching; mutable: `tighten` raises the bound."""

    run: Run
    network: Network
    unfold: Lift
    levels: list[int] = field(default_factory=lambda: list(LEVELS))
    terms: list[Term] | None = None

    @staticmethod
    def begin(problem: Problem, deadline: float) -> Bounding:
        """Folded only: with few choices, split tables often prove at once what they find."""
        run = Run(problem, monotonic(), deadline, None)
        return Bounding(run, *folded(run))

    @staticmethod
    def of(problem: Problem, deadline: float) -> Bounding:
        """Folded and eliminated, where that is not too much."""
        bounding = Bounding.begin(problem, deadline)
        run = bounding.run
        # What folds is narrow: there, elimination may take its time.
        work = WORK if "fold" in run.stages else AT_SIGHT
        choice = eliminate(bounding.network, deadline, work)
        if choice is not None:
            run.offer(bounding.unfold(choice))
            run.bound = run.solution(proved=True, summed=True).bound
            bounding.levels = []
        return bounding

    @property
    def value(self) -> float:
        """What no choice undercuts."""
        return self.run.bound

    @property
    def choice(self) -> Ints | None:
        """The cheapest choice found on the way, if any."""
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
        while self.levels and levels and run.bound < goal and monotonic() < deadline:
            if self.terms is None:
                self.terms = self._terms(whole)
                largest = max((term[0][1].size for term in self.terms), default=0)
                # Where nothing can be joined, the bound stays as it was.
                self.levels[1:] = [cells for cells in self.levels[1:] if cells > largest]
            cells = self.levels.pop(0)
            found = bound_by_splitting(
                self.network.sizes, self.terms, cells, deadline, integral=whole
            )
            if found is None:
                return
            if found.choice is not None:
                run.offer(self.unfold(found.choice))
            run.raise_bound(found.value - (0 if whole else ROUNDING * problem.magnitude))
            if found.exact:
                self.levels.clear()
            goal, levels = min(goal, run.cost), levels - 1

    @property
    def _largest(self) -> float:
        """The largest finite cost."""
        tables = {id(table): table for _, table in self.network.tables}.values()
        return max((t[np.isfinite(t)].max(initial=0) for t in tables), default=0.0)

    def _terms(self, integral: bool) -> list[Term]:
        # Loaded here because its compiled loops take a while to load, and elimination needs none.
        from eindecomp.solve.shift import shifted

        huge = self.run.problem.magnitude + 1
        huge = min(huge, _HUGE) if integral else huge
        return shifted(_finite(self.network, huge), integral=integral)


def folded(run: Run) -> tuple[Network, Lift]:
    """The problem's network after folding run after run of repeated blocks; how to undo that."""
    problem = run.problem
    network = share_equal(Network.of_problem(problem))
    folds: list[Fold] = []

    def unfold(choice: Ints) -> Ints:
        for step in reversed(folds):
            choice = step.lift(choice)
        return choice

    if problem.integral and not problem.exact_in_floats:
        return network, unfold
    while (smaller := fold(network, run.deadline)) is not None:
        run.enter("fold")
        folds.append(smaller)
        network = smaller.network
    return network, unfold


def _finite(network: Network, huge: float) -> Network:
    """The network with a large number in the place of ∞, and of whatever is larger."""
    kept: dict[int, Floats] = {}
    for _, table in network.tables:
        if id(table) not in kept:
            kept[id(table)] = np.minimum(table, huge)
    return Network(network.sizes, [(scope, kept[id(table)]) for scope, table in network.tables])

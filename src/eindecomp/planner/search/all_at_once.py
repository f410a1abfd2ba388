"""All axes at once: a bound on all plans, raised with larger and larger tables.

Numbers of pieces do not say which pieces overlap, and how. Where sizes are uneven, or axes differ
in size, that is most of what a plan pays. Here every vertex has all its assignments and every
movement has its true cost; only elimination is relaxed, and the choices found on the way are plans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.errors import UnsolvedError
from eindecomp.planner.model.movement import MovementModel
from eindecomp.planner.search.search import outcome_of
from eindecomp.solve.bound.bounding import Bounding
from eindecomp.solve.budgets import BUCKET_CELLS

if TYPE_CHECKING:
    from eindecomp.planner.search.search import Outcome, Search


@dataclass(frozen=True, slots=True, eq=False)
class AllAxes:
    """The problem of all axes at once, and what is known of it."""

    model: MovementModel
    bounding: Bounding

    @staticmethod
    def of(search: Search) -> AllAxes | None:
        """None if that is too large, or if memory is limited, which elimination cannot handle.

        Vertices that choose alike have no bound for those that need not.
        """
        if search.memory is not None or search.alike:
            return None
        try:
            model = MovementModel.of(
                search.graph, search.price, search.every_choice, search.rules,
                deadline=search.deadline,
            )  # fmt: skip
        except UnsolvedError:
            return None
        bounding = Bounding.begin(model.problem(), search.deadline)
        bounding.run.enter("split")
        return AllAxes(model, bounding)

    @property
    def bound(self) -> float:
        """What no plan undercuts."""
        return self.bounding.value

    def tighten(self, goal: float, deadline: float, levels: int | None = None) -> Outcome | None:
        """Raise the bound as far as goal, tables and time allow; the best plan found on the way."""
        self.bounding.tighten(goal, deadline, len(BUCKET_CELLS) if levels is None else levels)
        run = self.bounding.run
        return None if run.choice is None else outcome_of(self.model, run.solution(proved=False))

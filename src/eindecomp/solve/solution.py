"""What `minimize` returns, and what it reports while it works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eindecomp.solve.problem.arrays import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A choice, its cost, and a proved lower bound on the cost of any choice."""

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


@dataclass(frozen=True, slots=True)
class Progress:
    """What `minimize` reports while it works; `cost` is `inf` until a feasible choice is known."""

    seconds: float
    stage: str
    cost: int | float
    bound: int | float

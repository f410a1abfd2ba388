"""What `minimize` returns, and what it reports while it works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eindecomp.solve.problem.arrays import Ints


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

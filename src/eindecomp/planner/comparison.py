"""What a plan and the usual strategies cost, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.above import from_above

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eindecomp.planner.costs.cost import Number
    from eindecomp.planner.costs.objectives import Objective
    from eindecomp.planner.space.strategy import StrategyForm


@dataclass(frozen=True, slots=True)
class Compared:
    """What one strategy costs; None where no plan under it meets the pins and the memory limit.

    Attributes:
        name: What it is called, such as `"data parallel"`.
        strategy: The strategy itself, such as `["b"]`; None for the plan that is compared.
        cost: What it costs, such as `65536`.
        ratio: Its cost relative to the plan that is compared, such as `2.0`.
        gap: How far its cost can be above the optimum under it, such as `0.0`.
        refused: Why there is no plan, such as the message of a `PlanError`.
        memory: The most bytes that the fullest device holds at once, such as `4096`.
    """

    name: str
    strategy: StrategyForm | None
    cost: Number | None
    ratio: float | None
    gap: float | None
    refused: str | None = None
    memory: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """What a plan and the usual strategies cost, in rows: the plan itself, then each strategy.

    Attributes:
        objective: What is counted, such as `"bytes"`.
        rows: One for the plan and for each strategy; `len(comparison)` of them.
        inputs: Where inputs lie, `"sharded"` or `"free"`: free ones take part in neither cost nor
            placing.

    Examples:
        >>> import eindecomp as ed
        >>> text = "input X[i: 8, j: 8], Y[j, k: 8]\\nZ[i,k] <- sum X[i,j] * Y[j,k]\\noutput Z"
        >>> compared = ed.plan(ed.parse(text), 2, inputs="sharded").compare({"by rows": ["i"]})
        >>> [row.name for row in compared]
        ['this plan', 'by rows']
    """

    objective: str | Objective
    rows: tuple[Compared, ...]
    inputs: str = "sharded"

    def __iter__(self) -> Iterator[Compared]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        return from_above("show.compare").table_of(self)

    def __repr__(self) -> str:
        rows = ", ".join(f"{row.name} {_cost(row.cost)}" for row in self.rows)
        return f"<Comparison, {self.objective}: {rows}>"

    def _repr_html_(self) -> str:
        return from_above("show.notebook").comparison_html(self)


def _cost(cost: Number | None) -> str:
    return "without a plan" if cost is None else f"{cost:,}"

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
    """What one strategy costs; None where no plan under it meets the pins and the memory limit."""

    name: str
    strategy: StrategyForm | None
    cost: Number | None
    ratio: float | None
    """Its cost relative to the plan that is compared."""
    gap: float | None
    refused: str | None = None
    memory: int | None = None
    """The most bytes that the fullest device holds at once."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows: the plan itself, then each strategy."""

    objective: str | Objective
    rows: tuple[Compared, ...]
    inputs: str = "sharded"
    """Where inputs lie: those that are "free" take part in neither cost nor placing."""

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

"""Strategies side by side, as far as the time allows."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from eindecomp.planner.comparison import Compared, Comparison
from eindecomp.planner.space.strategy import applicable, spelled, strategy_words
from eindecomp.show.compare import planned_under, this_plan
from eindecomp.show.words import is_proved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eindecomp.planner.plan import Plan


def strategies(plan: Plan, compare: bool | Comparison, deadline: float) -> list[dict[str, Any]]:
    """A row for the plan and for each strategy; what was not planned in time has no cost."""
    if compare is False:
        return []
    rows = compare if isinstance(compare, Comparison) else _in_time(plan, deadline)
    return [_row(row) for row in rows]


def _in_time(plan: Plan, deadline: float) -> Iterator[Compared]:
    yield this_plan(plan)
    chosen = applicable(plan.graph, plan.devices, stateful=bool(plan.tie))
    for name, strategy in chosen.items():
        left = deadline - monotonic()
        if left > 0:
            yield planned_under(plan, name, strategy, left)
        else:
            yield Compared(name, strategy, None, None, None, "not computed within the time limit")


def _row(row: Compared) -> dict[str, Any]:
    return {
        "name": row.name,
        "strategy": strategy_words(spelled(row.strategy)),
        "cost": row.cost,
        "ratio": row.ratio,
        "gap": row.gap,
        "proved": row.gap is not None and is_proved(row.gap),
        "memory": row.memory,
        "refused": row.refused,
    }

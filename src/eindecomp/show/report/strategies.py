"""Strategies side by side, as far as the time allows."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from eindecomp.planner.comparison import Compared, Comparison
from eindecomp.planner.space.strategy import applicable, spelled, strategy_words
from eindecomp.show.compare import planned_under, this_plan
from eindecomp.show.words import is_proved

if TYPE_CHECKING:
    from eindecomp.planner.plan import Plan


def strategies(plan: Plan, compare: bool | Comparison, deadline: float) -> list[dict[str, Any]]:
    """A row for the plan and for each strategy; what was not planned in time has no cost."""
    if compare is False:
        return []
    rows = compare if isinstance(compare, Comparison) else _in_time(plan, deadline)
    return [_row(row) for row in rows]


def _in_time(plan: Plan, deadline: float) -> list[Compared]:
    chosen = applicable(plan.graph, plan.devices, stateful=bool(plan.tie))
    found: dict[str, Compared] = {}
    # The square root leaves the planner most to choose and takes longest.
    for name in sorted(chosen, key=lambda name: name == "sqrt"):
        left = deadline - monotonic()
        if left > 0:
            found[name] = planned_under(plan, name, chosen[name], left)
        else:
            late = "not computed within the time limit"
            found[name] = Compared(name, chosen[name], None, None, None, late)
    return [this_plan(plan), *(found[name] for name in chosen)]


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

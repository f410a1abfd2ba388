"""Compares a plan with the usual strategies, under the same cost model."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from eindecomp.errors import InfeasibleError, PlanError, UnsolvedError
from eindecomp.planner.comparison import Compared, Comparison
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.space.strategy import applicable, strategy_of
from eindecomp.show.words import exact, is_proved, percent, ratio, render

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eindecomp.planner.costs.cost import Number
    from eindecomp.planner.plan import Plan
    from eindecomp.solve.solution import Progress

    Strategy = str | Sequence[str]

THIS = "this plan"
_WIDTH = 100


def compare(
    plan: Plan,
    strategies: Mapping[str, Strategy] | None = None,
    *,
    time_limit: float = 60,
    on_event: Callable[[Progress], None] | None = None,
) -> Comparison:
    """Plan the same graph under each strategy: those that apply to it, or the given ones by name.

    `time_limit` applies to each of them.
    """
    chosen = applicable(plan.graph) if strategies is None else strategies
    for strategy in chosen.values():
        strategy_of(
            strategy, plan.graph
        )  # a mistake in the last one is found before the first is planned
    rows = [Compared(THIS, plan.strategy, plan.cost, 1.0, plan.gap)]
    for name, strategy in chosen.items():
        rows.append(_compared(plan, name, strategy, time_limit, on_event))
    return Comparison(plan.objective, tuple(rows))


def _compared(
    plan: Plan,
    name: str,
    strategy: Strategy,
    time_limit: float,
    on_event: Callable[[Progress], None] | None,
) -> Compared:
    shown = strategy if isinstance(strategy, str) else tuple(strategy)
    try:
        other = make_plan(
            plan.graph,
            objective=plan.objective,
            strategy=strategy,
            inputs=plan.inputs,
            memory=plan.memory,
            mesh=dict(zip(plan.mesh.names, plan.mesh.sizes, strict=True)),
            machine=plan.machine,
            pin=plan.pin,
            rewrite=False,
            time_limit=time_limit,
            on_event=on_event,
        )
    except (PlanError, InfeasibleError, UnsolvedError) as error:
        return Compared(name, shown, None, None, None, str(error))
    return Compared(name, shown, other.cost, _ratio(other.cost, plan.cost), other.gap)


def _ratio(cost: Number, to: Number) -> float:
    if to:
        return cost / to
    return inf if cost else 1.0


def table_of(comparison: Comparison) -> str:
    """A comparison as a table."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", overflow="fold")
    table.add_column("strategy", overflow="fold")
    table.add_column("cost", justify="right", overflow="fold")
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("gap", justify="right", no_wrap=True)
    for row in comparison.rows:
        labels = row.strategy if isinstance(row.strategy, tuple) else (row.strategy or "free",)
        cells = ["no plan: " + (row.refused or ""), "", ""]
        if row.cost is not None and row.ratio is not None and row.gap is not None:
            gap = "optimal" if is_proved(row.gap) else percent(row.gap)
            cells = [exact(row.cost, comparison.objective), ratio(row.ratio), gap]
        table.add_row(Text(row.name), Text(", ".join(labels)), *map(Text, cells))
    return render(_WIDTH, table).strip("\n")

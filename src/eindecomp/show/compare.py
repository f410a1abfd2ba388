"""Compares a plan with the usual strategies, under the same cost model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, isinf

from rich.table import Table
from rich.text import Text

from eindecomp.errors import InfeasibleError, PlanError, UnsolvedError, quote
from eindecomp.layout.mesh import ROWS
from eindecomp.planner.any_schedule import whole_plan
from eindecomp.planner.comparison import Compared, Comparison
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.plan import Plan
from eindecomp.planner.space.strategy import (
    GivenStrategy,
    Strategy,
    StrategyForm,
    applicable,
    spelled,
    strategy_form,
    strategy_of,
    strategy_words,
)
from eindecomp.show.words import exact, fewer_words, is_proved, percent, ratio, render, short, table
from eindecomp.solve.clock import interruptible
from eindecomp.solve.run import Progress
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import fullest

THIS = "this plan"
_WIDTH = 100
_NARROW = 90  # below this width, costs are rounded
FREE = (
    "Inputs are free: bringing them to where they are read is not counted, and memory holds the "
    "copies that this needs."
)

WORST = (
    "Where only rows of a table move that an index names, bytes are those of the worst case: that "
    "each names another row, which lies elsewhere."
)
ANY = (
    "any schedule: bytes moved, over the least that any schedule moves that divides the work as "
    "evenly and stores inputs and result once."
)
DIFFERS = "Time was up, or Ctrl-C ended planning; another run may find another plan:"


Listener = Callable[[Progress], None] | None


def compare(
    plan: Plan,
    strategies: Mapping[str, GivenStrategy | None] | None = None,
    *,
    time_limit: float = 60,
    on_event: Listener = None,
) -> Comparison:
    """Plan the same graph under each strategy: those that apply to it, or the given ones by name,
    of which None is free.

    `time_limit` applies to each of them. Ctrl-C ends the comparison: the row under way has the best
    plan so far, those after it have none.
    """
    if strategies is not None and not isinstance(strategies, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(
            f'strategies are given by name, such as {{"data": "data"}}, not as {quote(strategies)}'
        )
    chosen: Mapping[str, GivenStrategy | None] = (
        applicable(plan.graph, plan.devices, stateful=bool(plan.tie), repeated=True)
        if strategies is None
        else strategies
    )
    for strategy in chosen.values():
        # A mistake in the last one is found before the first is planned.
        if strategy is not None:
            strategy_of(strategy, plan.graph, plan.devices)
    rows = [_compared(THIS, plan.strategy, plan, 1.0)]
    with interruptible() as ending:
        for name, strategy in chosen.items():
            row: Compared | None = None
            if not ending.is_interrupted:
                row = _planned_under(plan, name, strategy, time_limit, on_event)
            if row is None or (row.cost is None and ending.is_interrupted):
                row = Compared(name, strategy_form(strategy), None, None, None, "interrupted")
            rows.append(row)
    return Comparison(
        plan.objective, tuple(rows), plan.inputs, plan.devices, plan.lookups, plan.fewer_devices
    )


def _planned_under(
    plan: Plan, name: str, strategy: GivenStrategy | None, time_limit: float, on_event: Listener
) -> Compared:
    """The row of one strategy: the same graph planned under it."""
    shown = strategy_form(strategy)
    try:
        other = make_plan(
            plan.graph, objective=plan.objective, strategy=strategy, inputs=plan.inputs,
            memory=plan.memory, mesh=plan.mesh.axes, machine=plan.machine, pin=plan.pin,
            tie=plan.tie, pieces=plan.pieces, lookups=plan.lookups, rewrite=False,
            time_limit=time_limit, on_event=on_event,
        )  # fmt: skip
    except (PlanError, InfeasibleError, UnsolvedError) as error:
        return Compared(name, shown, None, None, None, str(error))
    times = other.cost / plan.cost if plan.cost else inf if other.cost else 1.0
    return _compared(name, shown, other, times, _uses(plan, strategy))


def _compared(
    name: str, shown: StrategyForm | None, plan: Plan, times: float, uses: int | None = None
) -> Compared:
    against = whole_plan(plan)
    over = None if against is None or isinf(against.ratio) else against.ratio
    return Compared(
        name, shown, plan.cost, times, plan.gap, None, _memory(plan), over, uses, plan.stopped_by
    )


def _uses(plan: Plan, strategy: GivenStrategy | None) -> int | None:
    """Among how many devices the labels of a strategy divide vertices; None if among all."""
    cuts = None if strategy is None else strategy_of(strategy, plan.graph, plan.devices)
    uses = cuts.uses(plan.graph, plan.mesh) if isinstance(cuts, Strategy) else plan.devices
    return uses if uses < plan.devices else None


def _memory(plan: Plan) -> int | None:
    """The most bytes that the fullest device holds at once.

    The paper's bound does not say on which device a piece lies.
    """
    return None if plan.objective == "bound" else fullest(program_of(plan)).bytes


def table_of(comparison: Comparison, width: int = _WIDTH) -> str:
    """A comparison as text; on a narrow terminal costs are rounded."""
    shown = comparison_table(comparison, short if width < _NARROW else exact)
    return render(width, shown, *map(Text, comparison_notes(comparison))).strip("\n")


def comparison_notes(comparison: Comparison) -> list[str]:
    """What a table of a comparison leaves out, and what its columns do not say."""
    notes = [FREE] if comparison.inputs == "free" else []
    notes += [WORST] if comparison.lookups == ROWS else []
    notes += [ANY] * any(row.over_any is not None for row in comparison.rows)
    cut = [row.name for row in comparison.rows if row.stopped_by]
    notes += [f"{DIFFERS} {', '.join(cut)}."] * bool(cut)
    cost = comparison.rows[0].cost if comparison.rows else None
    if comparison.fewer is None or cost is None:
        return notes
    return [*notes, fewer_words(comparison.fewer, cost, comparison.devices, comparison.objective)]


def comparison_table(comparison: Comparison, cost_words: Callable[..., str] = exact) -> Table:
    """A row for each strategy: what it costs, or why there is no plan."""
    any_known = any(row.over_any is not None for row in comparison.rows)
    heads = ["cost", "ratio", "gap", "memory", *["any schedule"] * any_known]
    shown = table("", "strategy", *heads, left=2)
    shown.columns[2].no_wrap = False  # a refusal stands there
    for row in comparison.rows:
        cells = ["no plan: " + (row.refused or "")]
        if row.cost is not None and row.ratio is not None and row.gap is not None:
            gap = "optimal" if is_proved(row.gap) else percent(row.gap)
            memory = "" if row.memory is None else short(row.memory, "bytes")
            cells = [cost_words(row.cost, comparison.objective), ratio(row.ratio), gap, memory]
            cells += [ratio(row.over_any)] if row.over_any is not None else []
        shown.add_row(*map(Text, (row.name, row_words(row, comparison.devices), *cells)))
    return shown


def row_words(row: Compared, devices: int) -> str:
    """The strategy of a row in words, and whether its labels use all devices."""
    words = strategy_words(spelled(row.strategy))
    return words if row.uses is None else f"{words}; uses {row.uses} of {devices} devices"

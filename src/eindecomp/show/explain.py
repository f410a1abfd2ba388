"""A plan in words: how vertices are cut, what moves where, what it costs, and the alternatives."""

from __future__ import annotations

from shutil import get_terminal_size
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from eindecomp.layout.mesh import BALANCED
from eindecomp.planner.costs.price import Objective
from eindecomp.planner.space.strategy import strategy_words
from eindecomp.show.alternatives import Alternative, alternatives
from eindecomp.show.claim import claim, machine_words, not_counted, repeated
from eindecomp.show.movements import input_layouts, move_lines
from eindecomp.show.rows import Row, folded_rows
from eindecomp.show.words import (
    count_words,
    cuts,
    exact,
    mesh_words,
    percent,
    render,
    short,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from eindecomp.planner.plan import Plan

WIDTH = 120  # where there is no terminal
_LEAST = 40
_NARROW = 110  # below this width, layouts of results get a list of their own
_LINES, _NAMES = 12, 6
_NOTHING = 1e-9  # relative to the cost: how far rounding sets equal seconds apart

_MEANING = {
    "bytes": "that devices receive",
    "bound": "by the paper's bound on what moves",
    "time": "on the described machine",
    "own": "at the given prices",
}
_LEGEND = {
    "bytes": "join: inputs that devices receive. aggregate: partial results that devices receive "
    "and reduce. repartition: results of other vertices that devices receive, second layouts "
    "included.",
    "bound": "In elements, by the paper's bound. join: what kernel calls read. aggregate: partial "
    "results that are reduced. repartition: results that change from one partition to another.",
    "time": "join: fetching inputs. aggregate: reducing. repartition: fetching results of other "
    "vertices, second layouts included. compute: kernel calls.",
    "own": "At the given prices. join: fetching inputs. aggregate: reducing. repartition: fetching "
    "results of other vertices, second layouts included. compute: kernel calls.",
}


def explain(plan: Plan, width: int | None = None) -> str:
    """The whole plan as text: summary, table, inputs, movements and alternatives."""
    width = get_terminal_size((WIDTH, 24)).columns if width is None else width
    rows, narrow = folded_rows(plan), width < _NARROW
    parts: list[RenderableType] = [Text(summary(plan))]
    if rows:
        parts += [plan_table(plan, rows, narrow=narrow), Text(notes_of(plan, rows))]
        if narrow:
            results = _grouped({row.vertex: row.lies for row in rows})
            parts += _section("Result layouts", results)
        parts += _section("Input layouts", _grouped(input_layouts(plan, rows)))
        parts += _section("What moves", move_lines(plan, rows), right=True)
        title = "Alternatives: the next-best cut of each vertex, everything else fixed"
        parts += _section(title, _alternative_lines(plan, rows))
    return render(max(width, _LEAST), *parts)


def summary(plan: Plan) -> str:
    """A plan in one paragraph."""
    mesh = f" (mesh {mesh_words(plan.mesh)})" if plan.mesh.names else ""
    devices = count_words(plan.devices, "device")
    vertices = count_words(len(plan.parts), "vertex", "vertices")
    asked = [f"objective {plan.objective}", f"inputs {plan.inputs}"]
    if plan.pieces != BALANCED:
        asked.append(f"{plan.pieces} pieces")
    if plan.strategy is not None:
        asked.append(f"strategy {strategy_words(plan.strategy)}")
    if plan.pin:
        names = list(plan.pin)
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        asked.append(f"pinned {', '.join(names[:_NAMES])}{more}")
    if plan.tie:
        asked.append(f"{count_words(len(plan.tie), 'input')} tied")
    if plan.memory is not None:
        asked.append(f"at most {exact(plan.memory, 'bytes')} on each device")
    if plan.solver != "auto":
        asked.append(f"solver {plan.solver}")
    lines = [
        f"Plan of {vertices} for {devices}{mesh}: {', '.join(asked)}.",
        f"Cost {exact(plan.cost, plan.objective)} {meaning(plan)}. {not_counted(plan)}",
        claim(plan),
        *filter(None, [repeated(plan)]),
        f"Found by {plan.method or plan.solver} in {short(plan.seconds, 'time')}.",
    ]
    return "\n".join(line.rstrip() for line in lines)


def meaning(plan: Plan) -> str:
    """What the amount is that a plan costs."""
    return _MEANING[_kind(plan)]


def _kind(plan: Plan) -> str:
    """The objective by which wording is chosen."""
    return "own" if isinstance(plan.objective, Objective) else plan.objective


# The table


def plan_table(plan: Plan, rows: list[Row], *, narrow: bool = False) -> Table:
    """A row for each vertex: its cut, what it costs, and where its result lies if there is room."""
    folded = any(row.times > 1 for row in rows)
    shown = table()
    shown.show_footer = True
    shown.add_column("vertex", "total", overflow="fold", min_width=16)
    if folded:
        shown.add_column("", justify="right", no_wrap=True)
    shown.add_column("cut", overflow="fold")
    shown.add_column("calls", justify="right", no_wrap=True)
    names, cost = _columns(plan), plan.cost
    for name in names:
        total = sum(getattr(row, name) * row.times for row in rows)
        shown.add_column(name, short(total, plan.objective), justify="right", no_wrap=True)
    shown.add_column("share", percent(float(cost > 0)), justify="right", no_wrap=True)
    if not narrow:
        shown.add_column("result layout", overflow="fold", min_width=14)
    for row in rows:
        share = row.cost * row.times / cost if cost else 0.0
        shown.add_row(
            Text(row.statement),
            *([f"×{row.times}" if row.times > 1 else ""] if folded else []),
            Text(cuts(row.parts)),
            _calls(row),
            *(short(getattr(row, name), plan.objective) for name in names),
            percent(share),
            *([] if narrow else [Text(row.lies)]),
        )
    return shown


def _columns(plan: Plan) -> list[str]:
    """The parts of a row's cost that a plan's objective has."""
    return ["join", "aggregate", "repartition", *["compute"] * (_kind(plan) in ("time", "own"))]


def _calls(row: Row) -> str:
    if not row.calls:
        return ""
    return f"{row.pieces}×{row.copies}" if row.copies > 1 else str(row.pieces)


def notes_of(plan: Plan, rows: list[Row]) -> str:
    """What the columns mean."""
    notes = [
        "cut: pieces of each label, `h/8` is h in 8 pieces. calls: kernel calls, one for each "
        "piece.",
        _LEGEND[_kind(plan)],
    ]
    if any(row.copies > 1 and row.calls for row in rows):
        notes[0] += " `4×2`: 4 pieces, each computed by 2 devices."
    if any(row.times > 1 for row in rows):
        notes.append("`×n`: n such vertices; costs are for one of them, shares and totals for all.")
    notes += machine_words(plan, rows)
    if plan.objective != "bytes":
        moved = exact(plan.traffic.total, "bytes")
        notes.append(f"When the plan runs, devices receive {moved} in total.")
    return "\n".join(notes)


def _section(
    title: str, lines: Sequence[tuple[str, str]], *, right: bool = False
) -> list[RenderableType]:
    """A titled list in two columns, cut off at a readable length."""
    if not lines:
        return []
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(overflow="fold", justify="right" if right else "left", no_wrap=right)
    grid.add_column(overflow="fold")
    for left, words in lines[:_LINES]:
        grid.add_row(Text(left), Text(words))
    section: list[RenderableType] = [Text(f"\n{title}"), Padding(grid, (0, 0, 0, 2), expand=False)]
    if len(lines) > _LINES:
        section.append(Text(f"  and {len(lines) - _LINES} more"))
    return section


def _grouped(words: dict[str, str]) -> list[tuple[str, str]]:
    """Names that share a description, together."""
    names: dict[str, list[str]] = {}
    for name, said in words.items():
        names.setdefault(said, []).append(name)
    return [(", ".join(alike), said) for said, alike in names.items()]


# Alternatives


def _alternative_lines(plan: Plan, rows: list[Row]) -> list[tuple[str, str]]:
    return [
        (f"{name} {cuts(plan.parts[name])}", alternative_words(plan, other))
        for name, other in alternatives(plan, rows)
    ]


def alternative_words(plan: Plan, other: Alternative | None) -> str:
    """What the next-best cut of a vertex is and how much more it costs, or that there is none."""
    if other is None:
        within = "" if plan.strategy is None else " within this strategy"
        return f"no other cut is possible{within}{' with these pins' if plan.pin else ''}"
    nothing = _NOTHING * plan.cost if plan.objective == "time" else 0
    named = {
        "join": other.join,
        "aggregate": other.aggregate,
        "repartition": other.repartition,
        "compute": other.compute,
        "its readers' repartition": other.handover,
    }
    changes = {name: more for name, more in named.items() if abs(more) > nothing}
    detail = ", ".join(
        f"{name} {'+' if more > 0 else ''}{short(more, plan.objective)}"
        for name, more in changes.items()
    )
    why = f", in {next(iter(changes))}" if len(changes) == 1 else f" ({detail})" if detail else ""
    cut, amount = cuts(other.parts), short(abs(other.more), plan.objective)
    if abs(other.more) <= nothing:
        return f"{cut} would cost the same{why}"
    if other.more > 0:
        return f"{cut} would cost {amount} more{why}"
    limited = ", or the memory limit forbids that" if plan.memory is not None else ""
    return f"{cut} would cost {amount} less{why}: this plan is not optimal{limited}"

"""What notebooks show of graphs, plans, results and comparisons: one piece of HTML each.

Notebooks prefer HTML to SVG, so the HTML of a graph or a plan has its picture in it, with text and
tables below; the SVG alone is for viewers that show no HTML. Text has the colours of the notebook,
pictures have their own background.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from eindecomp.planner.space.strategy import spelled, strategy_words
from eindecomp.show.compare import FREE
from eindecomp.show.draw.graph_pictures import picture_of
from eindecomp.show.draw.scene import graph_scene, plan_scene
from eindecomp.show.explain import columns_of, summary
from eindecomp.show.rows import folded_rows
from eindecomp.show.words import cuts, exact, is_proved, percent, ratio, short

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eindecomp.engines.result import Result
    from eindecomp.graph.graph import Graph
    from eindecomp.planner.comparison import Compared, Comparison
    from eindecomp.planner.plan import Plan
    from eindecomp.show.draw.scene import Scene

_MOST_BOXES = 400  # of a picture that a notebook shows by itself
_MOST_LINES = 200
_CELL = "padding:2px 10px;border-bottom:1px solid rgba(128,128,128,.3);vertical-align:top;"
_MONO = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12px;"


def graph_html(graph: Graph) -> str:
    """A graph: its picture, and its text to unfold."""
    lines = str(graph).splitlines()
    text = "\n".join(lines[:_MOST_LINES])
    more = f"\n… and {len(lines) - _MOST_LINES} lines more" if len(lines) > _MOST_LINES else ""
    return _within(_picture(graph_scene(graph), "graph"), _unfold("as text", _pre(text + more)))


def graph_svg(graph: Graph) -> str | None:
    """The picture of a graph, if it is not too large."""
    return _svg(graph_scene(graph))


def plan_html(plan: Plan) -> str:
    """A plan: its picture, what it costs, and its table to unfold."""
    return _within(
        _picture(plan_scene(plan), "plan"),
        _pre(summary(plan)),
        _unfold("vertices, cuts and costs", _plan_table(plan)),
    )


def plan_svg(plan: Plan) -> str | None:
    """The picture of a plan, if it is not too large."""
    return _svg(plan_scene(plan))


def _plan_table(plan: Plan) -> str:
    rows = folded_rows(plan)
    names, cost = columns_of(plan), plan.cost
    table = _table(
        ["vertex", "", "cut", *names, "share", "result layout"],
        (
            [
                row.statement,
                f"×{row.times}" if row.times > 1 else "",
                cuts(row.parts),
                *(short(getattr(row, name), plan.objective) for name in names),
                percent(row.cost * row.times / cost if cost else 0.0),
                row.lies,
            ]
            for row in rows[:_MOST_LINES]
        ),
        right=range(3, 4 + len(names)),
    )
    left_out = len(rows) - _MOST_LINES
    if left_out <= 0:
        return table
    more = f"… and {left_out:,} row{'s' if left_out > 1 else ''} more: plan.explain() has them all"
    return f"{table}<p>{more}</p>"


def result_html(result: Result) -> str:
    """A result: its outputs, and what the run took."""
    stats = result.stats
    outputs = (
        [tensor.name, " × ".join(map(str, tensor.shape)) or "one number", str(tensor.dtype)]
        for tensor in result.tensors.values()
    )
    took = [
        ["time", short(stats.seconds, "time")],
        ["moved between devices", exact(stats.bytes_moved, "bytes")],
        ["peak memory (devices that share memory count as one)", short(stats.peak_memory, "bytes")],
        ["operations", f"{stats.flops:,}"],
        ["tasks", f"{stats.tasks:,} on {stats.workers:,} worker{'s' if stats.workers > 1 else ''}"],
    ]
    if stats.predicted is not None:
        took.insert(1, ["time expected", short(stats.predicted, "time")])
    return _within(
        _table(["output", "shape", "dtype"], outputs), _table(["run", ""], took, right=[1])
    )


def comparison_html(comparison: Comparison) -> str:
    """A comparison as a table."""
    rows = (_compared(comparison, row) for row in comparison)
    table = _table(["", "strategy", "cost", "ratio", "gap", "memory"], rows, right=range(2, 6))
    note = f"<p>{escape(FREE)}</p>" if comparison.inputs == "free" else ""
    return _within(table, note)


def _compared(comparison: Comparison, row: Compared) -> list[str]:
    words = strategy_words(spelled(row.strategy))
    if row.cost is None or row.ratio is None or row.gap is None:
        return [row.name, words, f"no plan: {row.refused or ''}", "", "", ""]
    gap = "optimal" if is_proved(row.gap) else percent(row.gap)
    memory = "" if row.memory is None else short(row.memory, "bytes")
    return [row.name, words, exact(row.cost, comparison.objective), ratio(row.ratio), gap, memory]


def _svg(scene: Scene) -> str | None:
    return picture_of(scene).svg if len(scene.nodes) <= _MOST_BOXES else None


def _picture(scene: Scene, what: str) -> str:
    svg = _svg(scene)
    if svg is not None:
        return svg
    return (
        f"<p>{escape(scene.title)}: too large to show here; {what}.draw('{what}.svg') draws it</p>"
    )


# HTML


def _within(*parts: str) -> str:
    return f'<div class="eindecomp-shown">{"".join(parts)}</div>'


def _pre(text: str) -> str:
    style = f"{_MONO}white-space:pre-wrap;margin:8px 0;background:none"
    return f'<pre style="{style}">{escape(text)}</pre>'


def _unfold(title: str, inside: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    to_right = set(right)

    def cell(tag: str, column: int, text: str) -> str:
        align = "text-align:right;white-space:nowrap" if column in to_right else "text-align:left"
        return f'<{tag} style="{_CELL}{align}">{escape(text)}</{tag}>'

    head = "".join(cell("th", k, text) for k, text in enumerate(heads))
    body = "".join(
        f"<tr>{''.join(cell('td', k, text) for k, text in enumerate(row))}</tr>" for row in rows
    )
    style = f"{_MONO}border-collapse:collapse;margin:8px 0"
    return f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'

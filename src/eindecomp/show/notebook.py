"""What notebooks show of graphs, plans, results and comparisons: one piece of HTML each.

A graph or a plan is its picture, with text and tables below. Text has the colours of the notebook,
pictures have their own background.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from rich.table import Column, Table

from eindecomp.engines.result import Result
from eindecomp.graph.graph import Graph
from eindecomp.planner.comparison import Comparison
from eindecomp.planner.plan import Plan
from eindecomp.show.compare import comparison_notes, comparison_table
from eindecomp.show.explain import plan_table, summary
from eindecomp.show.graph_pictures import Scene, graph_scene, picture_of, plan_scene
from eindecomp.show.rows import folded_rows
from eindecomp.show.words import count_words, exact, short, table

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


def plan_html(plan: Plan) -> str:
    """A plan: its picture, what it costs, and its table to unfold."""
    rows = folded_rows(plan)
    left_out = max(len(rows) - _MOST_LINES, 0)
    words = f"… and {count_words(left_out, 'row')} more: plan.explain() has them all"
    more = f"<p>{words}</p>" if left_out else ""
    return _within(
        _picture(plan_scene(plan), "plan"),
        _pre(summary(plan)),
        _unfold("vertices, cuts and costs", _table(plan_table(plan, rows[:_MOST_LINES])), more),
    )


def result_html(result: Result) -> str:
    """A result: its outputs, and what the run took."""
    stats = result.stats
    outputs = table("output", "shape", "dtype", left=3)
    for tensor in result.tensors.values():
        shape = " × ".join(map(str, tensor.shape)) or "one number"
        outputs.add_row(tensor.name, shape, str(tensor.dtype))
    took = table("run", "")
    took.add_row("time", short(stats.seconds, "time"))
    if stats.predicted is not None:
        took.add_row("time expected", short(stats.predicted, "time"))
    took.add_row("moved between devices", exact(stats.bytes_moved, "bytes"))
    memory = "peak memory (devices that share memory count as one)"
    took.add_row(memory, short(stats.peak_memory, "bytes"))
    took.add_row("operations", f"{stats.flops:,}")
    took.add_row("tasks", f"{stats.tasks:,} on {count_words(stats.workers, 'worker')}")
    return _within(_table(outputs), _table(took))


def comparison_html(comparison: Comparison) -> str:
    """A comparison as a table."""
    notes = (f"<p>{escape(note)}</p>" for note in comparison_notes(comparison))
    return _within(_table(comparison_table(comparison)), *notes)


def _picture(scene: Scene, what: str) -> str:
    if len(scene.nodes) <= _MOST_BOXES:
        return picture_of(scene).svg
    return f"<p>{escape(scene.title)}: too large to show; {what}.draw('{what}.svg') draws it</p>"


# HTML


def _within(*parts: str) -> str:
    return f'<div class="eindecomp-shown">{"".join(parts)}</div>'


def _pre(text: str) -> str:
    style = f"{_MONO}white-space:pre-wrap;margin:8px 0;background:none"
    return f'<pre style="{style}">{escape(text)}</pre>'


def _unfold(title: str, *inside: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{''.join(inside)}</details>"


def _table(table: Table) -> str:
    """A table as HTML, without its last row of sums."""

    def row(tag: str, texts: Iterable[object]) -> str:
        cells = zip(table.columns, texts, strict=True)
        return f"<tr>{''.join(cell(tag, column, str(text)) for column, text in cells)}</tr>"

    def cell(tag: str, column: Column, text: str) -> str:
        numbers = "text-align:right;white-space:nowrap"
        align = numbers if column.justify == "right" else "text-align:left"
        return f'<{tag} style="{_CELL}{align}">{escape(text)}</{tag}>'

    head = row("th", (column.header for column in table.columns))
    cells = zip(*(column.cells for column in table.columns), strict=True)
    body = "".join(row("td", texts) for texts in cells)
    style = f"{_MONO}border-collapse:collapse;margin:8px 0"
    return f'<table style="{style}"><thead>{head}</thead><tbody>{body}</tbody></table>'

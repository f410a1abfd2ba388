"""A record of a GPU as tables and as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from eindecomp.experiments.plot import bars, colours_of, losses, save
from eindecomp.experiments.show import TIME_COLUMNS, WIDTH, heading, table_of, times
from eindecomp.experiments.show import losses as losses_table
from eindecomp.show.words import render, short

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.table import Table

    from eindecomp.experiments.plot import Panel
    from eindecomp.experiments.show import Columns
    from on_gpu.record import GpuRecord, Measured, Row, Speed


def _size(nbytes: int | None) -> str:
    return "" if nbytes is None else short(nbytes, "bytes")


COLUMNS: Columns = {
    **{name: TIME_COLUMNS[name] for name in ("best", "median", "spread", "its time / ours")},
    "ours / its time": lambda row: f"{1 / row.ratio:.3f}" if row.ratio else "",
    "predicted": lambda row: "" if row.predicted is None else short(row.predicted, "time"),
    "peak": lambda row: _size(row.memory and row.memory.peak),
    "reserved": lambda row: _size(row.memory and row.memory.reserved),
    "limit": lambda row: _size(row.memory and row.memory.limit),
    "error": TIME_COLUMNS["error"],
    "same argmax": lambda row: "" if row.agreement is None else f"{row.agreement:.0%}",
}


def show(record: GpuRecord, width: int = WIDTH) -> str:
    """The tables of a record, as text."""
    measured = record.measured
    parts: list[Text | Table] = [Text(heading(record.device, record.date, record.machine))]
    for title, rows in _by_table(measured.rows).items():
        parts += times(rows, COLUMNS, title)
    if measured.curves:
        parts += [Text("Losses"), losses_table(measured.curves)]
    parts += [Text("Speeds measured in this run"), _speeds(measured.speeds)]
    return render(width, *parts, *map(Text, measured.notes))


def brief(measured: Measured) -> list[str]:
    """A line for each case: everybody's best time, while others are still measured."""
    cases: dict[str, list[str]] = {}
    for row in measured.rows:
        took = "absent" if row.timing is None else short(row.timing.best, "time")
        cases.setdefault(row.case, []).append(f"{row.name} {took}")
    return [f"{case}: {'; '.join(told)}" for case, told in cases.items()]


def plot(record: GpuRecord, stem: Path) -> list[Path]:
    """Draw a record as `stem`.png and `stem`.svg."""
    measured = record.measured
    colours = colours_of(row.name for row in (*measured.rows, *measured.curves))
    panels: list[Panel] = [
        lambda axes, title=title, rows=rows: bars(axes, rows, colours, title)
        for title, rows in _by_table(measured.rows).items()
    ]
    expected = [row for row in measured.rows if row.predicted is not None]
    if expected:
        panels.append(lambda axes: _expectations(axes, expected))
    if measured.curves:
        panels.append(lambda axes: losses(axes, measured.curves, colours))
    return save(record.device, panels, stem)


def _by_table(rows: Sequence[Row]) -> dict[str, list[Row]]:
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(row.table, []).append(row)
    return tables


def _speeds(speeds: Sequence[Speed]) -> Table:
    table = table_of("what", "speed")
    for speed in speeds:
        table.add_row(Text(speed.name), Text(f"{speed.value:,.4g} {speed.unit}"))
    return table


def _expectations(panel: Any, rows: list[Row]) -> None:
    """How near a run came to the time that was predicted, and to the memory that it might take."""
    measured = [row.predicted / row.timing.best for row in rows if row.predicted and row.timing]
    taken = [row.memory.peak / row.memory.limit if row.memory else 0 for row in rows]
    for number, (label, heights) in enumerate(
        {"predicted / measured time": measured, "peak memory / limit": taken}.items()
    ):
        panel.bar([k + 0.4 * number - 0.2 for k in range(len(heights))], heights, 0.4, label=label)
    panel.axhline(1, color="black", linewidth=0.8)
    names = [f"{row.case}\n{row.name}".replace(", ", ",\n") for row in rows]
    panel.set_xticks(range(len(rows)), names, fontsize=6)
    panel.legend(fontsize=7)

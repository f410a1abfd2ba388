"""A record of a GPU as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from eindecomp.experiments.record import TIME_COLUMNS, WIDTH, heading, losses, times
from eindecomp.show.words import render, short, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from eindecomp.experiments.record import Columns
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
    for title, rows in by_table(measured.rows).items():
        parts += times(rows, COLUMNS, title)
    if measured.curves:
        parts += [Text("Losses"), losses(measured.curves)]
    parts += [Text("Speeds measured in this run"), _speeds(measured.speeds)]
    return render(width, *parts, *map(Text, measured.notes))


def brief(measured: Measured) -> list[str]:
    """A line for each case: everybody's best time, while others are still measured."""
    cases: dict[str, list[str]] = {}
    for row in measured.rows:
        took = "absent" if row.timing is None else short(row.timing.best, "time")
        cases.setdefault(row.case, []).append(f"{row.name} {took}")
    return [f"{case}: {'; '.join(told)}" for case, told in cases.items()]


def by_table(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by the table that they belong to."""
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(row.table, []).append(row)
    return tables


def _speeds(speeds: Sequence[Speed]) -> Table:
    shown = table("what", "speed")
    for speed in speeds:
        shown.add_row(Text(speed.name), Text(f"{speed.value:,.4g} {speed.unit}"))
    return shown

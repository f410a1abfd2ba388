"""A record as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from eindecomp.experiments.price import OURS
from eindecomp.show.words import ratio, render, short

if TYPE_CHECKING:
    from eindecomp.experiments.record import Curve, Findings, Host, Priced, Record, Speed, Timed

WIDTH = 160
FREE = (
    "Free inputs lie wherever they are read: placing them there is not counted, and the copies "
    "that this needs are in memory.\n"
)


def show(record: Record, width: int = WIDTH) -> str:
    """The tables of a record, as text."""
    found = record.findings
    tables: list[Text | Table] = []
    for title, rows in by_table(found.timed).items():
        tables += [Text(title or "Time, and bytes that moved"), _times(rows)]
        tables += [*_absent(rows), Text("")]
    for (case, inputs), rows in grouped(found.priced).items():
        title = "Bytes that plans move, how many times as much as ours, and memory per device: "
        tables += [Text(f"{title}{case}, inputs {inputs}"), _moves(rows)]
        tables += [Text(FREE)] if inputs == "free" else []
    if found.curves:
        tables += [Text("Losses"), _losses(found.curves)]
    if found.speeds:
        tables += [Text("Speeds measured in this run"), _speeds(found.speeds)]
    tables += [Text(note) for note in found.notes]
    where = "" if record.device is None else f", {record.device}"
    head = f"{record.experiment} on {record.engine}{where}, {record.date}\n"
    return render(width, Text(f"{head}{describe(record.machine)}\n"), *tables)


def describe(machine: Host) -> str:
    """A machine in a line."""
    memory = short(machine.memory, "bytes")
    blas = "; ".join(machine.blas)
    return f"{machine.cores} cores, {machine.cpu}, {machine.system}, {memory}, BLAS: {blas}"


def brief(findings: Findings) -> list[str]:
    """A line for each case: everybody's best time, while others are still measured."""
    cases: dict[str, list[str]] = {}
    for row in findings.timed:
        took = "absent" if row.timing is None else short(row.timing.best, "time")
        cases.setdefault(row.case, []).append(f"{row.name} {took}")
    return [f"{case}: {'; '.join(told)}" for case, told in cases.items()]


def by_table(rows: tuple[Timed, ...]) -> dict[str, list[Timed]]:
    """Rows by the table that they belong to."""
    found: dict[str, list[Timed]] = {}
    for row in rows:
        found.setdefault(row.table, []).append(row)
    return found


def grouped(rows: tuple[Priced, ...]) -> dict[tuple[str, str], list[Priced]]:
    """Rows by case and by where inputs lie."""
    found: dict[tuple[str, str], list[Priced]] = {}
    for row in rows:
        found.setdefault((row.case, row.inputs), []).append(row)
    return found


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(columns[0], overflow="fold")
    for column in columns[1:]:
        table.add_column(column, justify="right", overflow="fold")
    return table


def _times(rows: list[Timed]) -> Table:
    """The columns that some row has anything in."""
    columns = [(title, cell) for title, cell in _COLUMNS.items() if any(map(cell, rows))]
    table = _table("who", *(title for title, _ in columns))
    case = ""
    for row in rows:
        if row.case != case:
            case = row.case
            table.add_section()
            table.add_row(Text(case, style="bold"))
        cells = ["", "absent"] if row.timing is None else [cell(row) for _, cell in columns]
        table.add_row(Text("  " + row.name), *map(Text, cells))
    return table


def _absent(rows: list[Timed]) -> list[Text]:
    found = dict.fromkeys((row.name, row.absent) for row in rows if row.absent is not None)
    return [Text(f"{name} is absent: {reason}") for name, reason in found]


def _time(seconds: float | None) -> str:
    return "" if seconds is None else short(seconds, "time")


def _size(nbytes: int | None) -> str:
    return "" if nbytes is None else short(nbytes, "bytes")


_COLUMNS: dict[str, Callable[[Timed], str]] = {
    "devices": lambda row: "" if row.devices is None else str(row.devices),
    "best": lambda row: _time(row.timing and row.timing.best),
    "median": lambda row: _time(row.timing and row.timing.median),
    "spread": lambda row: f"{row.timing.spread:.2f}" if row.timing and row.timing.repeats else "",
    "its time / ours": lambda row: "" if row.ratio is None else f"{row.ratio:.3f}",
    "ours / its time": lambda row: f"{1 / row.ratio:.3f}" if row.table and row.ratio else "",
    "predicted": lambda row: _time(row.predicted),
    "peak": lambda row: _size(row.memory and row.memory.peak),
    "reserved": lambda row: _size(row.memory and row.memory.reserved),
    "limit": lambda row: _size(row.memory and row.memory.limit),
    "plan cost": lambda row: "" if row.table else _size(row.plan_cost),
    "counted": lambda row: "" if row.table else _size(row.bytes_counted),
    "error": lambda row: "" if row.error is None else f"{row.error:.1e}",
    "same argmax": lambda row: "" if row.agreement is None else f"{row.agreement:.0%}",
}


def _moves(rows: list[Priced]) -> Table:
    names = list(dict.fromkeys(row.name for row in rows))
    table = _table("devices", *names)
    for devices in dict.fromkeys(row.devices for row in rows):
        found = {row.name: row for row in rows if row.devices == devices}
        cells = [_moved(found[name]) if name in found else "" for name in names]
        table.add_row(str(devices), *map(Text, cells))
    return table


def _moved(row: Priced) -> str:
    moved = short(row.bytes_counted, "bytes")
    again = "" if row.name == OURS else f" ({ratio(row.ratio)})"
    return f"{moved}{again}, {short(row.memory, 'bytes')}"


def _losses(curves: tuple[Curve, ...]) -> Table:
    table = _table("who", "steps", "first", "last", "apart from ours")
    for curve in curves:
        first, last = curve.losses[0], curve.losses[-1]
        cells = (str(len(curve.losses)), f"{first:.5f}", f"{last:.5f}", f"{curve.apart:.1e}")
        table.add_row(Text(curve.name), *map(Text, cells))
    return table


def _speeds(speeds: tuple[Speed, ...]) -> Table:
    table = _table("what", "speed")
    for speed in speeds:
        table.add_row(Text(speed.name), Text(f"{speed.value:,.4g} {speed.unit}"))
    return table

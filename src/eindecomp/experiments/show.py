"""A record as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from eindecomp.experiments.price import OURS
from eindecomp.show.words import ratio, render, short

if TYPE_CHECKING:
    from eindecomp.experiments.record import Curve, Host, Priced, Record, Timed

_WIDTH = 160
FREE = (
    "Free inputs lie wherever they are read: placing them there is not counted, and the copies "
    "that this needs are in memory.\n"
)


def show(record: Record) -> str:
    """The tables of a record, as text."""
    found = record.findings
    tables: list[Text | Table] = [Text("Time, and bytes that moved"), _times(found.timed)]
    tables += [*_absent(found.timed), Text("")]
    for (case, inputs), rows in grouped(found.priced).items():
        title = "Bytes that plans move, how many times as much as ours, and memory per device: "
        tables += [Text(f"{title}{case}, inputs {inputs}"), _moves(rows)]
        tables += [Text(FREE)] if inputs == "free" else []
    if found.curves:
        tables += [Text("Losses"), _losses(found.curves)]
    head = Text(
        f"{record.experiment} on {record.engine}, {record.date}\n{describe(record.machine)}\n"
    )
    return render(_WIDTH, head, *tables)


def describe(machine: Host) -> str:
    """A machine in a line."""
    memory = short(machine.memory, "bytes")
    blas = "; ".join(machine.blas)
    return f"{machine.cores} cores, {machine.cpu}, {machine.system}, {memory}, BLAS: {blas}"


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


def _times(rows: tuple[Timed, ...]) -> Table:
    columns = ("best", "median", "spread", "its time / ours", "plan cost", "counted", "error")
    table = _table("who", "devices", *columns)
    case = ""
    for row in rows:
        if row.case != case:
            case = row.case
            table.add_section()
            table.add_row(Text(case, style="bold"))
        table.add_row(Text("  " + row.name), *map(Text, _cells(row)))
    return table


def _absent(rows: tuple[Timed, ...]) -> list[Text]:
    reasons = {row.name: row.absent for row in rows if row.absent is not None}
    return [Text(f"{name} is absent: {reason}") for name, reason in reasons.items()]


def _cells(row: Timed) -> list[str]:
    timing = row.timing
    if timing is None or row.ratio is None:
        return ["", "absent"]
    return [
        "" if row.devices is None else str(row.devices),
        short(timing.best, "time"),
        short(timing.median, "time"),
        f"{timing.spread:.2f}",
        f"{row.ratio:.3f}",
        "" if row.plan_cost is None else short(row.plan_cost, "bytes"),
        "" if row.bytes_counted is None else short(row.bytes_counted, "bytes"),
        "" if row.error is None else f"{row.error:.1e}",
    ]


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

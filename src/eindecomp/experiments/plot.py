"""A record as a picture: time against ours, bytes by devices, losses by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.errors import extra
from eindecomp.experiments.price import OURS
from eindecomp.experiments.show import by_table, grouped
from eindecomp.store.whole_file import replacing

if TYPE_CHECKING:
    from pathlib import Path

    from eindecomp.experiments.record import Curve, Priced, Record, Timed

FORMATS = ("png", "svg")


def check_plots() -> None:
    """Raise now what would keep a picture from being drawn after the measuring."""
    extra("matplotlib")


def plot(record: Record, stem: Path) -> list[Path]:
    """Draw a record as `stem`.png and `stem`.svg."""
    figure = draw(record)
    paths = [stem.with_suffix(f".{form}") for form in FORMATS]
    for path, form in zip(paths, FORMATS, strict=True):
        with replacing(path) as fresh:
            figure.savefig(fresh, format=form, dpi=120)
    return paths


def draw(record: Record) -> Any:
    """The figure: panels in two columns."""
    found = record.findings
    groups = list(grouped(found.priced).values())
    tables = by_table(found.timed)
    expected = [row for row in found.timed if row.predicted is not None]
    count = len(tables) + len(groups) + bool(expected) + bool(found.curves)
    rows = -(-count // 2)
    figure = extra("matplotlib.figure").Figure(figsize=(13, 4.2 * rows), layout="constrained")
    panels = figure.subplots(rows, 2, squeeze=False).flat
    colours = _colours(record)
    for title, timed in tables.items():
        _times(next(panels), title, timed, colours)
    if expected:
        _expectations(next(panels), expected)
    for group in groups:
        _moves(next(panels), group, colours)
    if found.curves:
        _losses(next(panels), found.curves, colours)
    for panel in panels:
        panel.axis("off")
    machine = record.machine
    where = record.device or f"{machine.cpu}, {machine.cores} cores"
    figure.suptitle(f"{record.experiment}, {where}")
    return figure


def _colours(record: Record) -> dict[str, Any]:
    """The same colour for a name in all panels, ours the first."""
    found = record.findings
    rows = (*found.priced, *found.timed, *found.curves)
    names = dict.fromkeys(row.name for row in rows)
    more = extra("matplotlib").colormaps["tab20b"]
    return {name: f"C{k}" if k < 10 else more(k % 20) for k, name in enumerate(names)}


def _times(panel: Any, title: str, rows: list[Timed], colours: dict[str, Any]) -> None:
    """Groups of bars; all of a case in one group."""
    cases = list(dict.fromkeys(row.case for row in rows))
    names = list(dict.fromkeys(row.name for row in rows if row.timing is not None))
    width = 0.85 / max(1, len(names))
    for number, name in enumerate(names):
        mine = [row for row in rows if row.name == name and row.ratio is not None]
        places = [cases.index(row.case) + (number + 0.5) * width - 0.425 for row in mine]
        panel.bar(places, [row.ratio for row in mine], width, label=name, color=colours[name])
    panel.axhline(1, color="black", linewidth=0.8)
    panel.set_xticks(range(len(cases)), [case.replace(", ", ",\n") for case in cases], fontsize=8)
    panel.set_ylabel("its time / ours")
    panel.set_title(title, fontsize=9)
    if names:
        panel.legend(fontsize=6, ncols=2)


def _expectations(panel: Any, rows: list[Timed]) -> None:
    """How near a run came to the time that was predicted, and to the memory that it might take."""
    measured = [row.predicted / row.timing.best for row in rows if row.predicted and row.timing]
    taken = [row.memory.peak / row.memory.limit if row.memory else 0 for row in rows]
    for number, (label, bars) in enumerate(
        {"predicted / measured time": measured, "peak memory / limit": taken}.items()
    ):
        panel.bar([k + 0.4 * number - 0.2 for k in range(len(bars))], bars, 0.4, label=label)
    panel.axhline(1, color="black", linewidth=0.8)
    names = [f"{row.case}\n{row.name}".replace(", ", ",\n") for row in rows]
    panel.set_xticks(range(len(rows)), names, fontsize=6)
    panel.legend(fontsize=7)


def _moves(panel: Any, rows: list[Priced], colours: dict[str, Any]) -> None:
    """Lines; below the least that moves, the axis is linear, so that zero has its place."""
    least = min((row.bytes_counted for row in rows if row.bytes_counted), default=1)
    for name in dict.fromkeys(row.name for row in rows):
        mine = [row for row in rows if row.name == name]
        places, moved = [row.devices for row in mine], [row.bytes_counted for row in mine]
        # Where others move as little as ours they would hide it, or it them.
        style: dict[str, Any] = (
            {"marker": "s", "markersize": 7, "markerfacecolor": "none", "linestyle": "--"}
            if name == OURS
            else {"marker": "o", "markersize": 4}
        )
        panel.plot(places, moved, label=name, color=colours[name], **style)
    panel.set_xscale("log", base=2)
    panel.set_yscale("symlog", linthresh=least)
    panel.set_ylim(0, 3 * max(row.bytes_counted for row in rows) or 1)
    devices = list(dict.fromkeys(row.devices for row in rows))
    panel.set_xticks(devices, map(str, devices))
    panel.set_xlabel("devices")
    panel.set_ylabel("bytes that move")
    panel.set_title(f"{rows[0].case}, inputs {rows[0].inputs}", fontsize=9)
    panel.legend(fontsize=7)


def _losses(panel: Any, curves: tuple[Curve, ...], colours: dict[str, Any]) -> None:
    for curve in curves:
        steps, colour = range(1, len(curve.losses) + 1), colours[curve.name]
        panel.plot(steps, curve.losses, label=curve.name, alpha=0.7, color=colour)
    panel.set_xlabel("step")
    panel.set_ylabel("loss")
    panel.legend(fontsize=7)

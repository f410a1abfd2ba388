"""A record as a picture: time against ours, bytes by devices, losses by step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from matplotlib import colormaps
from matplotlib.figure import Figure

from eindecomp.engines.whole_files import replacing
from eindecomp.experiments.record import OURS, grouped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from eindecomp.experiments.record import LossCurve, Priced, Record, Timed

    Colours = dict[str, Any]

FORMATS = ("png", "svg")
Panel = Callable[[Any], None]
"""Draws one panel of a picture."""


def plot(record: Record, stem: Path) -> list[Path]:
    """Draw a record as `stem`.png and `stem`.svg: times, bytes by devices, losses by step."""
    findings, machine = record.findings, record.machine
    rows = (*findings.priced, *findings.timed, *findings.curves)
    colours = colours_of(row.name for row in rows)
    panels: list[Panel] = [partial(bars, rows=findings.timed, colours=colours)]
    panels += [
        partial(_moves, rows=rows, colours=colours) for rows in grouped(findings.priced).values()
    ]
    if findings.curves:
        panels.append(partial(losses, curves=findings.curves, colours=colours))
    return save(f"{record.experiment}, {machine.cpu}, {machine.cores} cores", panels, stem)


def save(title: str, panels: Sequence[Panel], stem: Path) -> list[Path]:
    """Draw panels in two columns as `stem`.png and `stem`.svg."""
    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(13, 4.2 * rows), layout="constrained")
    every = figure.subplots(rows, 2, squeeze=False).flat
    for axes, panel in zip_longest(every, panels):
        if panel is None:
            axes.axis("off")
        else:
            panel(axes)
    figure.suptitle(title)
    paths = [stem.with_suffix(f".{form}") for form in FORMATS]
    for path, form in zip(paths, FORMATS, strict=True):
        with replacing(path) as fresh:
            figure.savefig(fresh, format=form, dpi=120)
    return paths


def colours_of(names: Iterable[str]) -> Colours:
    """The same colour for a name in all panels, ours the first."""
    more = colormaps["tab20b"]
    distinct = enumerate(dict.fromkeys(names))
    return {name: f"C{k}" if k < 10 else more(k % 20) for k, name in distinct}


def bars(panel: Any, rows: Sequence[Timed], colours: Colours, title: str = "") -> None:
    """Times as groups of bars; all of a case in one group."""
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


def _moves(panel: Any, rows: list[Priced], colours: Colours) -> None:
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


def losses(panel: Any, curves: Sequence[LossCurve], colours: Colours) -> None:
    """Losses by step."""
    for curve in curves:
        steps, colour = range(1, len(curve.losses) + 1), colours[curve.name]
        panel.plot(steps, curve.losses, label=curve.name, alpha=0.7, color=colour)
    panel.set_xlabel("step")
    panel.set_ylabel("loss")
    panel.legend(fontsize=7)

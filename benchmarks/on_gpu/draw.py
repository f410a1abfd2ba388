"""A record of a GPU as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plot import bars, colours_of, losses, save

from on_gpu.show import by_table

if TYPE_CHECKING:
    from pathlib import Path

    from plot import Panel

    from on_gpu.record import GpuRecord, Row


def plot(record: GpuRecord, stem: Path) -> list[Path]:
    """Draw a record as `stem`.png and `stem`.svg."""
    measured = record.measured
    colours = colours_of(row.name for row in (*measured.rows, *measured.curves))
    panels: list[Panel] = [
        lambda axes, title=title, rows=rows: bars(axes, rows, colours, title)
        for title, rows in by_table(measured.rows).items()
    ]
    expected = [row for row in measured.rows if row.predicted is not None]
    if expected:
        panels.append(lambda axes: _expectations(axes, expected))
    if measured.curves:
        panels.append(lambda axes: losses(axes, measured.curves, colours))
    return save(record.device, panels, stem)


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

"""A simulated run as text, and as a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from eindecomp.engines.result import TaskFinished
from eindecomp.errors import InputError
from eindecomp.show.trace import tracing
from eindecomp.show.words import exact, percent, render, short, table
from eindecomp.tra.simulation.simulate import SimulatedRun

_WIDTH = 100
_ROWS = 20
_MOST_TRACED = 64


def table_of(run: SimulatedRun, width: int = _WIDTH) -> str:
    """How long it takes, where the time goes, what links carry, and the critical path."""
    moved = short(run.bytes_moved, "bytes")
    told = f"{exact(run.seconds, 'time')} on {run.devices} devices; {moved} moved."
    parts: list[Table | Text] = [Text(told), _devices(run)]
    if run.levels:
        parts.append(_links(run))
    parts.append(_path(run))
    return render(width, *parts).strip("\n")


def _devices(run: SimulatedRun) -> Table:
    shown = table("seconds of a device", "least", "mean", "most", "mean share")
    rows = {
        "computing": run.computing,
        "waiting for communication": run.exposed,
        "idle at the end": run.idle,
    }
    for name, own in rows.items():
        amounts = [short(float(x), "time") for x in (own.min(), own.mean(), own.max())]
        shown.add_row(name, *amounts, _share(run, float(own.mean())))
    return shown


def _links(run: SimulatedRun) -> Table:
    shown = table("links of", "bytes of all", "most received", "fullest busy", "share")
    for level in run.levels:
        shown.add_row(
            Text(level.name),
            short(level.bytes, "bytes"),
            short(int(level.received.max()), "bytes"),
            short(level.busy, "time"),
            _share(run, level.busy),
        )
    return shown


def _path(run: SimulatedRun) -> Table:
    """The critical path by vertex and kind, the longest first."""
    shown = table("critical path", "", "seconds", "share", left=2)
    total: Counter[tuple[str, str]] = Counter()
    for step in run.critical_path:
        total[step.vertex, step.kind] += step.seconds  # pyright: ignore[reportArgumentType] - counts of seconds
    rows = total.most_common()
    for (vertex, kind), seconds in rows[:_ROWS]:
        shown.add_row(Text(vertex), kind, short(seconds, "time"), _share(run, seconds))
    if rest := sum(seconds for _, seconds in rows[_ROWS:]):
        shown.add_row(f"{len(rows) - _ROWS} more", "", short(rest, "time"), _share(run, rest))
    return shown


def _share(run: SimulatedRun, seconds: float) -> str:
    return percent(seconds / run.seconds if run.seconds else 0.0)


def write_trace(run: SimulatedRun, path: str | Path, devices: Sequence[int]) -> None:
    """A trace in the form of those of real runs: kernels are worker 0, each level one after it."""
    if len(devices) > _MOST_TRACED:
        raise InputError(f"a trace shows at most {_MOST_TRACED} devices, not {len(devices)}")
    for device in devices:
        if not 0 <= device < run.devices:
            raise InputError(f"there is no device {device} among {run.devices}")
    with tracing(path) as listen:
        for device in devices:
            for task in run.tasks(device):
                listen(TaskFinished(task.vertex, task.kind, device, task.row, task.start, task.end))

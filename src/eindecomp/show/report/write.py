"""Writes the report of a plan: what it shows is collected, then put into one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eindecomp.errors import InputError
from eindecomp.planner.costs.machine import machine_of
from eindecomp.show.draw.svg import check_page
from eindecomp.show.report.check import check_comparison, check_run, events_of
from eindecomp.show.report.content import content
from eindecomp.show.report.html import html_page
from eindecomp.store.whole_file import check_writable, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eindecomp.engines.events import Event
    from eindecomp.engines.result import Result
    from eindecomp.planner.comparison import Comparison
    from eindecomp.planner.costs.machine import Machine
    from eindecomp.planner.plan import Plan
    from eindecomp.tra.simulation.run import SimulatedRun


def report(
    plan: Plan,
    path: str | Path,
    *,
    result: Result | SimulatedRun | None = None,
    events: Iterable[Event] | None = None,
    compare: bool | Comparison = True,
    machine: Machine | str | Path | None = None,
    time_limit: float = 30,
) -> Path:
    """Write the report of a plan, and of a run of it, to an HTML file.

    Whatever is wrong with the arguments is said before anything is computed.
    """
    output = Path(path)
    told = events_of(events)
    check_run(plan, result, told)
    check_comparison(plan, compare)
    if not isinstance(time_limit, int | float) or not time_limit >= 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"time_limit of a report is a number of seconds, not {time_limit!r}")
    timed_on = plan.machine if machine is None else machine_of(machine)
    check_writable(output)
    check_page(output)
    shown = content(plan, result, told, compare, timed_on, time_limit)
    write_whole(output, html_page(shown))
    return output

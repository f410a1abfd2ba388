"""Everything that a report shows, as one object of plain numbers, strings and lists.

Strings that repeat (layouts) and tile grids stand in it once and are referred to by number, so that
a plan of thousands of vertices makes a small file.
"""

from __future__ import annotations

from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Any

from eindecomp.planner.costs.objectives import Objective
from eindecomp.show.draw.svg import device_colour
from eindecomp.show.explain import notes_of, summary
from eindecomp.show.report.alternatives import alternatives_by_vertex
from eindecomp.show.report.figures import figures
from eindecomp.show.report.picture import bands
from eindecomp.show.report.run import run_content
from eindecomp.show.report.shared import Shared
from eindecomp.show.report.strategies import strategies
from eindecomp.show.report.vertices import vertex_content
from eindecomp.show.rows import rows_of
from eindecomp.show.words import mesh_words

if TYPE_CHECKING:
    from eindecomp.engines.events import Event
    from eindecomp.engines.result import Result
    from eindecomp.planner.comparison import Comparison
    from eindecomp.planner.costs.machine import Machine
    from eindecomp.planner.plan import Plan
    from eindecomp.tra.simulation.run import SimulatedRun

_UNITS = {"bytes": "bytes", "bound": "elements", "time": "seconds"}
_ALTERNATIVES = 0.2  # of the time limit, at most: a plan of thousands of vertices that all differ


def content(
    plan: Plan,
    result: Result | SimulatedRun | None = None,
    events: list[Event] | None = None,
    compare: bool | Comparison = False,
    machine: Machine | None = None,
    time_limit: float = 30,
) -> dict[str, Any]:
    """What a report of a plan shows; alternatives and strategies within the time limit, together.

    >>> import eindecomp as ed
    >>> plan = ed.plan(ed.parse("input X[i: 8, j: 8]\\nZ[i] <- sum X[i,j]\\noutput Z"), 2)
    >>> [vertex["name"] for vertex in content(plan)["vertices"]]
    ['X', 'Z']
    """
    began = monotonic()
    rows, shared = rows_of(plan), Shared()
    number = {name: k for k, name in enumerate(plan.graph.vertices)}
    seconds = None if machine is None else plan.time_on(machine)
    vertices = [vertex_content(plan, name, number, shared, seconds) for name in number]
    alternatives = alternatives_by_vertex(plan, rows, number, began + _ALTERNATIVES * time_limit)
    side_by_side = strategies(plan, compare, began + time_limit)
    custom = isinstance(plan.objective, Objective)
    return {
        "version": import_module("eindecomp").__version__,  # it stands above all layers
        "title": summary(plan).split("\n")[0].rstrip("."),
        "summary": summary(plan).split("\n"),
        "notes": notes_of(plan, rows).split("\n") if rows else [],
        "figures": figures(plan, side_by_side),
        "objective": str(plan.objective),
        "unit": plan.objective.unit if isinstance(plan.objective, Objective)
        else _UNITS[plan.objective],
        "computes": custom or plan.objective == "time",
        "devices": plan.devices,
        "mesh": mesh_words(plan.mesh),
        "cost": plan.cost,
        "moved": plan.traffic.total,
        "vertices": vertices,
        "words": list(shared.words),
        "grids": shared.grids,
        "colours": [device_colour(k, plan.devices) for k in range(plan.devices)],
        "bands": bands(plan, number),
        "alternatives": alternatives,
        "strategies": side_by_side,
        "run": run_content(plan, result, events, seconds, number),
    }  # fmt: skip

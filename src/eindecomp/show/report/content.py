"""Everything that a report shows, as one object of plain numbers, strings and lists.

Strings that repeat (layouts) and tile grids stand in it once and are referred to by number, so that
a plan of thousands of vertices makes a small file.
"""

from __future__ import annotations

from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Any

from eindecomp.planner.comparison import Compared, Comparison
from eindecomp.planner.costs.objectives import Objective
from eindecomp.planner.space.strategy import applicable, spelled, strategy_words
from eindecomp.show.alternatives import next_best
from eindecomp.show.compare import planned_under, this_plan
from eindecomp.show.draw.svg import device_colour
from eindecomp.show.explain import alternative_words, meaning, notes_of, summary
from eindecomp.show.report.run import run_content
from eindecomp.show.report.vertices import Shared, bands, vertex_content
from eindecomp.show.rows import row_key, rows_of
from eindecomp.show.words import exact, is_proved, mesh_words, percent, short
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import fullest

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from eindecomp.engines.result import Event, Result
    from eindecomp.planner.costs.machine import Machine
    from eindecomp.planner.plan import Plan
    from eindecomp.show.rows import Row
    from eindecomp.tra.simulation.run import SimulatedRun

_UNITS = {"bytes": "bytes", "bound": "elements", "time": "seconds"}
_QUICK = 1 << 15  # vertices on devices whose memory is worked out in a few seconds
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
    alternatives = _alternatives(plan, rows, number, began + _ALTERNATIVES * time_limit)
    side_by_side = _strategies(plan, compare, began + time_limit)
    custom = isinstance(plan.objective, Objective)
    return {
        "version": import_module("eindecomp").__version__,  # it stands above all layers
        "title": summary(plan).split("\n")[0].rstrip("."),
        "summary": summary(plan).split("\n"),
        "notes": notes_of(plan, rows).split("\n") if rows else [],
        "figures": _figures(plan, side_by_side),
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


# The figures at the top


def _figures(plan: Plan, strategies: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """What is told first: cost, gap, bytes, memory, each with a word of explanation."""
    in_full = f"{plan.cost:,} bytes " if plan.objective == "bytes" else ""
    least = f"no such plan costs less than {exact(plan.bound, plan.objective)}"
    gap = (percent(plan.gap), least)
    if is_proved(plan.gap):
        gap = ("0 %", f"proved optimal: {least}")
    moved = (short(plan.traffic.total, "bytes"), "received by all devices")
    told = {
        "cost": (short(plan.cost, plan.objective), in_full + meaning(plan)),
        "gap": gap,
        **({} if plan.objective == "bytes" else {"bytes that move": moved}),
        "memory": _memory(plan, strategies),
        "devices": (f"{plan.devices:,}", f"{len(plan.parts):,} vertices are computed on them"),
    }
    return [{"name": name, "value": value, "note": note} for name, (value, note) in told.items()]


def memory_of(plan: Plan) -> int | None:
    """The bytes that the fullest device holds; None where that is not known soon, or at all."""
    if plan.objective == "bound" or plan.devices * len(plan.graph.vertices) > _QUICK:
        return None
    return fullest(program_of(plan)).bytes


def _memory(plan: Plan, strategies: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """What the fullest device holds."""
    if plan.objective == "bound":
        return "–", "the paper's bound does not say where pieces lie"
    most = strategies[0]["memory"] if strategies else memory_of(plan)
    if most is None:
        return "–", "not computed"
    return short(most, "bytes"), "held at once by the fullest device"


# Alternatives and strategies


def _alternatives(
    plan: Plan, rows: Sequence[Row], number: Mapping[str, int], deadline: float
) -> dict[str, Any]:
    """The next-best cuts in words, of which vertex each is, and which vertices it holds for.

    `of` has for each vertex the number of its alternative, or -1. Vertices are alike if they differ
    only in names and axes; the costliest come first, and after the deadline none is searched for.
    """
    alike: dict[Hashable, list[str]] = {}
    for row in sorted(rows, key=lambda row: -row.cost):
        if row.vertex in plan.parts:
            alike.setdefault(row_key(plan, row), []).append(row.vertex)
    searched: list[dict[str, Any]] = []
    of = [-1] * len(number)
    for names in alike.values():
        if monotonic() >= deadline:
            break
        words = alternative_words(plan, next_best(plan, names[0]))
        for name in names:
            of[number[name]] = len(searched)
        searched.append({"words": words, "vertex": number[names[0]]})
    return {"of": of, "found": searched}


def _strategies(plan: Plan, compare: bool | Comparison, deadline: float) -> list[dict[str, Any]]:
    """A row for the plan and for each strategy; what was not planned in time has no cost."""
    if compare is False:
        return []
    rows = compare if isinstance(compare, Comparison) else _in_time(plan, deadline)
    return [_row(row) for row in rows]


def _in_time(plan: Plan, deadline: float) -> list[Compared]:
    chosen = applicable(plan.graph, plan.devices, stateful=bool(plan.tie))
    compared: dict[str, Compared] = {}
    # The square root leaves the planner most to choose and takes longest.
    for name in sorted(chosen, key=lambda name: name == "sqrt"):
        left = deadline - monotonic()
        if left > 0:
            compared[name] = planned_under(plan, name, chosen[name], left)
        else:
            late = "not computed within the time limit"
            compared[name] = Compared(name, chosen[name], None, None, None, late)
    return [this_plan(plan), *(compared[name] for name in chosen)]


def _row(row: Compared) -> dict[str, Any]:
    return {
        "name": row.name,
        "strategy": strategy_words(spelled(row.strategy)),
        "cost": row.cost,
        "ratio": row.ratio,
        "gap": row.gap,
        "proved": row.gap is not None and is_proved(row.gap),
        "memory": row.memory,
        "refused": row.refused,
    }

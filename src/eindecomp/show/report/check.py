"""Refuses what a report cannot show: a run or a comparison of another plan, and what is neither."""

from __future__ import annotations

from collections.abc import Iterable
from math import isclose
from typing import TYPE_CHECKING, Any

from eindecomp.engines.events import (
    PROGRAM,
    BytesMoved,
    Event,
    KernelCompiled,
    TaskFinished,
    TaskStarted,
)
from eindecomp.engines.result import Result
from eindecomp.errors import InputError
from eindecomp.planner.comparison import Comparison
from eindecomp.planner.space.strategy import spelled, strategy_words
from eindecomp.show.report.content import memory_of
from eindecomp.show.words import exact
from eindecomp.tra.simulation.run import SimulatedRun

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from eindecomp.planner.plan import Plan

_NOBODY = "None"  # what an engine that compiles whole programs counts for no vertex of them


def events_of(given: object) -> list[Event] | None:
    """The events that were given, as a list."""
    if given is None:
        return None
    told: list[Any] = list(given) if isinstance(given, Iterable) else [given]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - of anything
    for event in told:
        if not isinstance(event, Event):
            kind = type(event).__name__
            raise InputError(f"events are what ed.run gave to on_event, not {kind}")
    return told


def check_run(
    plan: Plan, result: Result | SimulatedRun | None, events: Sequence[Event] | None
) -> None:
    """Raise `InputError` unless these can be a run of the plan."""
    match result:
        case None:
            pass
        case Result():
            _check_result(plan, result)
        case SimulatedRun():
            if events is not None:
                raise InputError("a simulated run has no events of its own: give it alone")
            _check_simulated(plan, result)
        case _:  # pyright: ignore[reportUnnecessaryComparison]
            kind = type(result).__name__
            raise InputError(f"result is what ed.run or ed.simulate returned, not {kind}")
    if events is not None:
        pieces = result.stats.cut_into if isinstance(result, Result) else None
        _check_events(plan, events, pieces or plan.devices)


def check_comparison(plan: Plan, compare: bool | Comparison) -> None:
    """Raise `InputError` unless the first row of a comparison can be that of the plan."""
    if isinstance(compare, bool):
        return
    if not isinstance(compare, Comparison):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"compare is True, False or a Comparison, not {compare!r}")
    if str(compare.objective) != str(plan.objective):
        raise _compared(f"its objective is {str(compare.objective)!r}")
    ours = compare.rows[0] if compare.rows else None
    if ours is None or ours.cost is None:
        raise _compared("its first row has no cost")
    if not isclose(ours.cost, plan.cost, rel_tol=1e-9):
        raise _compared(
            f"its first row costs {exact(ours.cost, plan.objective)}, "
            f"this plan {exact(plan.cost, plan.objective)}"
        )
    theirs, own = (strategy_words(spelled(s)) for s in (ours.strategy, plan.strategy))
    if theirs != own:
        raise _compared(f"its first row cuts {theirs}, this plan {own}")
    held = memory_of(plan)
    if held is not None and ours.memory is not None and held != ours.memory:
        raise _compared(
            f"its first row holds {exact(ours.memory, 'bytes')} on the fullest device, "
            f"this plan {exact(held, 'bytes')}"
        )


def _check_result(plan: Plan, result: Result) -> None:
    stats = result.stats
    _check_names(plan, plan.parts, stats.bytes_by_vertex)
    wanted = {vertex.name: vertex.shape for vertex in plan.graph.outputs}
    for name, tensor in result.tensors.items():
        if tuple(tensor.shape) != wanted.get(name):
            raise _ran(f"its output {name!r} has the shape {list(tensor.shape)}")
        if stats.cut_into is None and tensor.mesh.devices != plan.devices:
            raise _devices(plan, tensor.mesh.devices)


def _check_simulated(plan: Plan, run: SimulatedRun) -> None:
    if run.devices != plan.devices:
        raise _devices(plan, run.devices)
    simulated = run.program.graph.vertices
    _check_names(plan, plan.graph.vertices, simulated)
    for name, vertex in simulated.items():
        if vertex.shape != plan.graph[name].shape:
            raise _ran(f"{name!r} has the shape {list(vertex.shape)} in it")


def _check_names(plan: Plan, wanted: Iterable[str], computed: Collection[str]) -> None:
    for name in wanted:
        if name not in computed:
            raise _ran(f"it did not compute {name!r}")
    for name in computed:
        if name not in plan.graph and name != _NOBODY:
            raise _ran(f"it computed {name!r}")


def _check_events(plan: Plan, events: Sequence[Event], devices: int) -> None:
    whole = any(isinstance(event, TaskFinished) and event.vertex == PROGRAM for event in events)
    for event in events:
        if isinstance(event, TaskStarted | TaskFinished | KernelCompiled) and not (
            0 <= event.device < devices
        ):
            raise _ran(f"its events name device {event.device}, and there are {devices:,}")
        # One that ran as a whole has names of its own for what no vertex stands for.
        if (
            isinstance(event, TaskStarted | TaskFinished | BytesMoved)
            and event.vertex not in plan.graph
            and not whole
        ):
            raise _ran(f"its events name {event.vertex!r}, which is not in the graph")


def _ran(why: str) -> InputError:
    return InputError(f"this is a run of another plan: {why}")


def _devices(plan: Plan, devices: int) -> InputError:
    return _ran(f"it is for {devices:,} devices, this plan for {plan.devices:,}")


def _compared(why: str) -> InputError:
    return InputError(f"this is a comparison of another plan: {why}")

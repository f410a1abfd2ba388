"""What a report tells of a run: the timeline, and what was counted beside what was predicted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from eindecomp.engines.events import BytesMoved, Event, KernelCompiled, TaskFinished
from eindecomp.engines.result import Result
from eindecomp.errors import InputError
from eindecomp.show.report.timeline import Span, timeline
from eindecomp.show.words import exact, short
from eindecomp.tra.simulation.run import SimulatedRun

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from eindecomp.engines.result import Stats
    from eindecomp.planner.costs.cost import Cost
    from eindecomp.planner.plan import Plan

_MOST_DEVICES = 64  # whose simulated tasks are shown


def check_run(
    plan: Plan, result: Result | SimulatedRun | None, events: Sequence[Event] | None
) -> None:
    """Raise `InputError` unless these can be a run of the plan."""
    if result is not None and not isinstance(result, Result | SimulatedRun):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(result).__name__
        raise InputError(f"result is what ed.run or ed.simulate returned, not {kind}")
    for event in events or ():
        if not isinstance(event, Event):  # pyright: ignore[reportUnnecessaryIsInstance]
            kind = type(event).__name__
            raise InputError(f"events are what ed.run gave to on_event, not {kind}")
    if isinstance(result, SimulatedRun) and events is not None:
        raise InputError("a simulated run has no events of its own: give it alone")
    ran = _vertices_of(result)
    missing = [] if ran is None else [name for name in plan.parts if name not in ran]
    if missing:
        raise InputError(f"this is a run of another plan: it did not compute {missing[0]!r}")


def _vertices_of(result: Result | SimulatedRun | None) -> Collection[str] | None:
    match result:
        case Result():
            return result.stats.bytes_by_vertex
        case SimulatedRun():
            return result.program.graph.vertices
        case None:
            return None


def run_content(
    plan: Plan,
    result: Result | SimulatedRun | None,
    events: Sequence[Event] | None,
    seconds: Cost | None,
    number: Mapping[str, int],
) -> dict[str, Any] | None:
    """A run as the page shows it; None if there was none."""
    if isinstance(result, SimulatedRun):
        return _simulated(plan, result, seconds, number)
    if result is None and events is None:
        return None
    told = events or ()
    spans = [
        Span(e.vertex, e.kind, e.device, None, e.start, e.end)
        for e in told
        if isinstance(e, TaskFinished)
    ]
    counted = _counted(result, told)
    number = _with_others(number, [*counted, *(span.vertex for span in spans)])
    return {
        "names": list(number)[len(plan.graph.vertices) :],
        "simulated": False,
        "words": [*_words(plan, result, told, counted), *_left_out(events, seconds)],
        "vertices": _beside(plan, counted, seconds, _busiest(spans), number),
        "timeline": timeline(spans, number) if spans else None,
    }


def _simulated(
    plan: Plan, run: SimulatedRun, seconds: Cost | None, number: Mapping[str, int]
) -> dict[str, Any]:
    devices = range(min(run.devices, _MOST_DEVICES))
    spans = [
        Span(task.vertex, task.kind, device, task.row, task.start, task.end)
        for device in devices
        for task in run.tasks(device)
    ]
    words = [
        f"Simulated, not run: {exact(run.seconds, 'time')} on {run.devices:,} devices, which "
        f"receive {exact(run.bytes_moved, 'bytes')}."
    ]
    if run.devices > _MOST_DEVICES:
        words.append(f"The timeline shows the first {_MOST_DEVICES} devices.")
    counted = run.program.bytes_by_vertex
    return {
        "names": [],
        "simulated": True,
        "words": words,
        "vertices": _beside(plan, counted, seconds, _busiest(spans), number),
        "timeline": timeline(spans, number) if spans else None,
    }


def _with_others(number: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """Numbers also for names that are none of the plan's: an engine may run it as one program."""
    found = dict(number)
    for name in names:
        found.setdefault(name, len(found))
    return found


def _counted(result: Result | None, events: Sequence[Event]) -> Mapping[str, int]:
    """The bytes that were counted for each vertex, by the engine or from its events."""
    if result is not None:
        return result.stats.bytes_by_vertex
    moved: Counter[str] = Counter()
    for event in events:
        if isinstance(event, BytesMoved):
            moved[event.vertex] += event.count
    return moved


def _busiest(spans: Sequence[Span]) -> dict[str, float]:
    """For each vertex the seconds of the device that was longest at it."""
    own: Counter[tuple[str, int]] = Counter()
    for span in spans:
        own[span.vertex, span.device] += span.end - span.start  # pyright: ignore[reportArgumentType] - counts of seconds
    longest: dict[str, float] = {}
    for (vertex, _), seconds in own.items():
        longest[vertex] = max(longest.get(vertex, 0.0), float(seconds))
    return longest


def _beside(
    plan: Plan,
    counted: Mapping[str, int],
    seconds: Cost | None,
    measured: Mapping[str, float],
    number: Mapping[str, int],
) -> list[list[int | float | None]]:
    """For each vertex: predicted and counted bytes, predicted and measured seconds."""
    names = {*plan.traffic.join, *counted, *measured}
    return [
        [
            number[name],
            plan.traffic.of(name),
            counted.get(name, 0),
            None if seconds is None or name not in plan.decisions else seconds.of(name),
            measured.get(name),
        ]
        for name in sorted(names, key=number.__getitem__)
    ]


def _words(
    plan: Plan, result: Result | None, events: Sequence[Event], counted: Mapping[str, int]
) -> Iterator[str]:
    """The run in sentences."""
    moved = sum(counted.values())
    planned = int(plan.traffic.total)
    same = "exactly as planned" if moved == planned else f"{exact(planned, 'bytes')} were planned"
    yield f"Devices received {exact(moved, 'bytes')}: {same}."
    if result is not None:
        yield from _stats_words(result.stats)
    compiled = sum(e.end - e.start for e in events if isinstance(e, KernelCompiled))
    if compiled:
        yield f"{short(compiled, 'time')} of its tasks were spent on compiling kernels."


def _stats_words(stats: Stats) -> Iterator[str]:
    workers = f"{stats.workers:,} worker{'s' if stats.workers > 1 else ''}"
    yield (
        f"The run took {exact(stats.seconds, 'time')}: {stats.tasks:,} tasks on {workers}, "
        f"{short(stats.peak_memory, 'bytes')} of memory at most."
    )
    if stats.bytes_placed:
        yield f"Placing what was given moved {exact(stats.bytes_placed, 'bytes')} more."
    if stats.cut_into is not None:
        yield (
            f"Vertices were cut into {stats.cut_into:,} pieces, more than planned, because tiles "
            "did not fit in memory: what moved is what moved between these."
        )
    if stats.recovered:
        yield f"{len(stats.recovered):,} tasks were computed again after a loss."


def _left_out(events: Sequence[Event] | None, seconds: Cost | None) -> Iterator[str]:
    """What would be shown with more arguments."""
    if events is None:
        yield (
            "For the timeline and seconds by vertex, collect the events of the run: "
            "ed.run(plan, inputs, on_event=events.append), then report(…, events=events)."
        )
    if seconds is None:
        yield "For predicted seconds, name a machine: report(…, machine=…)."

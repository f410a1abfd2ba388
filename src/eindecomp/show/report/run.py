"""What a report tells of a run: the timeline, and what was counted beside what was predicted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from eindecomp.engines.events import BytesMoved, KernelCompiled
from eindecomp.show.report.kernels import kernels_of
from eindecomp.show.report.timeline import Span, timeline
from eindecomp.show.words import count_words, exact, short
from eindecomp.tra.simulation.run import SimulatedRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eindecomp.engines.events import Event
    from eindecomp.engines.result import Result, Stats
    from eindecomp.planner.costs.cost import Cost
    from eindecomp.planner.plan import Plan

_MOST_DEVICES = 64  # whose simulated tasks are shown
_SHARED = (
    "Some kernels compute several vertices: the timeline shows such a kernel once, and its seconds "
    "are shared out equally among its vertices."
)


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
    kernels = kernels_of(told)
    spans = [Span(k.name, k.kind, k.device, None, k.start, k.end) for k in kernels]
    measured = _busiest((v, k.device, k.seconds_each) for k in kernels for v in k.vertices)
    counted = _counted(result, told)
    number = _with_others(number, [*counted, *measured, *(span.vertex for span in spans)])
    return {
        "names": list(number)[len(plan.graph.vertices) :],
        "simulated": False,
        "words": [
            *_words(plan, result, told, counted),
            *([_SHARED] if any(len(kernel.vertices) > 1 for kernel in kernels) else []),
            *_left_out(events, seconds),
        ],
        "vertices": _beside(plan, counted, seconds, measured, number),
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
    busiest = _busiest((span.vertex, span.device, span.end - span.start) for span in spans)
    return {
        "names": [],
        "simulated": True,
        "words": words,
        "vertices": _beside(plan, counted, seconds, busiest, number),
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


def _busiest(tasks: Iterable[tuple[str, int, float]]) -> dict[str, float]:
    """For each vertex the seconds of the device that was longest at it."""
    own: dict[tuple[str, int], float] = {}
    for vertex, device, seconds in tasks:
        own[vertex, device] = own.get((vertex, device), 0.0) + seconds
    longest: dict[str, float] = {}
    for (vertex, _), seconds in own.items():
        longest[vertex] = max(longest.get(vertex, 0.0), seconds)
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
    if moved != planned:
        same = f"{exact(planned, 'bytes')} were planned"
    elif any(plan.traffic.of(v) != counted.get(v, 0) for v in {*plan.traffic.join, *counted}):
        same = "as many as planned, but not for the same vertices"
    else:
        same = "exactly as planned"
    yield f"Devices received {exact(moved, 'bytes')}: {same}."
    if result is not None:
        yield from _stats_words(result.stats)
    compiled = sum(e.end - e.start for e in events if isinstance(e, KernelCompiled))
    if compiled:
        yield f"{short(compiled, 'time')} of its tasks were spent on compiling kernels."


def _stats_words(stats: Stats) -> Iterator[str]:
    workers = count_words(stats.workers, "worker")
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

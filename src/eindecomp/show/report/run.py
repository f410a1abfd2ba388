"""What a report tells of a run: the timeline, and what was counted beside what was predicted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eindecomp.engines.result import BytesMoved, KernelCompiled, TaskFinished
from eindecomp.show.words import count_words, exact, short
from eindecomp.tra.simulation.run import SimulatedRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eindecomp.engines.result import Event, Result, Stats
    from eindecomp.planner.costs.cost import Cost
    from eindecomp.planner.plan import Plan

_MOST_DEVICES = 64  # whose simulated tasks are shown
_MOST_KERNELS = 30_000  # that a page shows; of more, the longest
_NAMED = 3  # vertices of a kernel that are named; of more, it is said how many
_NANO = 1e9


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a device did from a start to an end, for one vertex or for several at once."""

    vertices: tuple[str, ...]
    kind: str
    device: int
    start: float
    end: float
    row: int | None = None
    """Its row among those of the device, or None if it goes wherever there is room."""

    @property
    def name(self) -> str:
        """Its vertex, or those that it computes together.

        >>> Kernel(("Z",), "compute", 0, 0.0, 1.0).name
        'Z'
        >>> Kernel(("T", "P", "Z", "Y"), "compute", 0, 0.0, 1.0).name
        'one kernel with T, P, Z and 1 more'
        """
        if len(self.vertices) == 1:
            return self.vertices[0]
        more = len(self.vertices) - _NAMED
        named = ", ".join(self.vertices[:_NAMED])
        return f"one kernel with {named}{f' and {more} more' if more > 0 else ''}"


def run_content(
    plan: Plan,
    result: Result | SimulatedRun | None,
    events: Sequence[Event] | None,
    seconds: Cost | None,
    number: Mapping[str, int],
) -> dict[str, Any] | None:
    """A run as the page shows it; None if there was none."""
    if result is None and events is None:
        return None
    if isinstance(result, SimulatedRun):
        kernels = _simulated_kernels(result)
        counted: Mapping[str, int] = result.program.bytes_by_vertex
        words = [*_simulated_words(result)]
    else:
        kernels = kernels_of(events or ())
        counted = _counted(result, events or ())
        words = [
            *_moved_words(plan, counted),
            *(() if result is None else _stats_words(result.stats)),
            *_kernel_words(events or (), kernels),
            *_left_out(events, seconds),
        ]
    measured = _busiest(kernels)
    # Numbers also for names that are none of the plan's: an engine may run it as one program.
    names = [*number, *counted, *measured, *(kernel.name for kernel in kernels)]
    every = {name: k for k, name in enumerate(dict.fromkeys(names))}
    return {
        "names": list(every)[len(number) :],
        "simulated": isinstance(result, SimulatedRun),
        "words": words,
        "vertices": _beside(plan, counted, seconds, measured, every),
        "timeline": timeline(kernels, every) if kernels else None,
    }


def _simulated_kernels(run: SimulatedRun) -> list[Kernel]:
    return [
        Kernel((task.vertex,), task.kind, device, task.start, task.end, task.row)
        for device in range(min(run.devices, _MOST_DEVICES))
        for task in run.tasks(device)
    ]


def kernels_of(events: Iterable[Event]) -> list[Kernel]:
    """Tasks that a worker began and ended together on a device are one kernel.

    >>> tasks = [TaskFinished(name, "compute", 0, 0, 0.0, 1.0) for name in "TZ"]
    >>> [kernel.vertices for kernel in kernels_of(tasks)]
    [('T', 'Z')]
    """
    together: dict[tuple[int, int, float, float], list[TaskFinished]] = {}
    for event in events:
        if isinstance(event, TaskFinished):
            at = (event.device, event.worker, event.start, event.end)
            together.setdefault(at, []).append(event)
    return [
        Kernel(
            tuple(dict.fromkeys(task.vertex for task in tasks)),
            " + ".join(dict.fromkeys(task.kind for task in tasks)),
            device,
            start,
            end,
        )
        for (device, _, start, end), tasks in together.items()
    ]


# What was counted


def _counted(result: Result | None, events: Sequence[Event]) -> Mapping[str, int]:
    """The bytes that were counted for each vertex, by the engine or from its events."""
    if result is not None:
        return result.stats.bytes_by_vertex
    moved: Counter[str] = Counter()
    for event in events:
        if isinstance(event, BytesMoved):
            moved[event.vertex] += event.count
    return moved


def _busiest(kernels: Iterable[Kernel]) -> dict[str, float]:
    """For each vertex the seconds of the device that was longest at it.

    Nobody measures a vertex within a kernel: the kernel's time is shared out equally.
    """
    own: dict[tuple[str, int], float] = {}
    for kernel in kernels:
        share = (kernel.end - kernel.start) / len(kernel.vertices)
        for vertex in kernel.vertices:
            own[vertex, kernel.device] = own.get((vertex, kernel.device), 0.0) + share
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


# In words


def _simulated_words(run: SimulatedRun) -> Iterator[str]:
    yield (
        f"Simulated, not run: {exact(run.seconds, 'time')} on {run.devices:,} devices, which "
        f"receive {exact(run.bytes_moved, 'bytes')}."
    )
    if run.devices > _MOST_DEVICES:
        yield f"The timeline shows the first {_MOST_DEVICES} devices."


def _moved_words(plan: Plan, counted: Mapping[str, int]) -> Iterator[str]:
    moved, planned = sum(counted.values()), int(plan.traffic.total)
    if moved != planned:
        same = f"{exact(planned, 'bytes')} were planned"
    elif any(plan.traffic.of(v) != counted.get(v, 0) for v in {*plan.traffic.join, *counted}):
        same = "as many as planned, but not for the same vertices"
    else:
        same = "exactly as planned"
    yield f"Devices received {exact(moved, 'bytes')}: {same}."


def _stats_words(stats: Stats) -> Iterator[str]:
    yield (
        f"The run took {exact(stats.seconds, 'time')}: {stats.tasks:,} tasks on "
        f"{count_words(stats.workers, 'worker')}, {short(stats.peak_memory, 'bytes')} of memory "
        "at most."
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


def _kernel_words(events: Sequence[Event], kernels: Sequence[Kernel]) -> Iterator[str]:
    compiled = sum(e.end - e.start for e in events if isinstance(e, KernelCompiled))
    if compiled:
        yield f"{short(compiled, 'time')} of its tasks were spent on compiling kernels."
    if any(len(kernel.vertices) > 1 for kernel in kernels):
        yield (
            "Some kernels compute several vertices: the timeline shows such a kernel once, and its "
            "seconds are shared out equally among its vertices."
        )


def _left_out(events: Sequence[Event] | None, seconds: Cost | None) -> Iterator[str]:
    """What would be shown with more arguments."""
    if events is None:
        yield (
            "For the timeline and seconds by vertex, collect the events of the run: "
            "ed.run(plan, inputs, on_event=events.append), then report(…, events=events)."
        )
    if seconds is None:
        yield "For predicted seconds, name a machine: report(…, machine=…)."


# The timeline


def timeline(kernels: Sequence[Kernel], number: Mapping[str, int]) -> dict[str, Any]:
    """Kernels in order of time, as columns; times are in nanoseconds after the first.

    A device has as many rows as kernels were busy on it at once.

    >>> kernels = [Kernel((v,), "compute", 0, start, 2.0) for v, start in (("Z", 0.0), ("Y", 1.0))]
    >>> shown = timeline(kernels, {"Z": 0, "Y": 1})
    >>> shown["row"], shown["rows"]
    ([0, 1], [0, 0])
    """
    kept = sorted(kernels, key=lambda kernel: kernel.start - kernel.end)[:_MOST_KERNELS]
    kept.sort(key=lambda kernel: (kernel.start, kernel.device))
    kinds = list(dict.fromkeys(kernel.kind for kernel in kept))
    rows = _rows(kept)
    order = {row: k for k, row in enumerate(sorted(set(rows)))}
    first = kept[0].start
    return {
        "kinds": kinds,
        "rows": [device for device, _ in order],
        "vertex": [number[kernel.name] for kernel in kept],
        "kind": [kinds.index(kernel.kind) for kernel in kept],
        "row": [order[row] for row in rows],
        "start": [round((kernel.start - first) * _NANO) for kernel in kept],
        "length": [round((kernel.end - kernel.start) * _NANO) for kernel in kept],
        "left_out": len(kernels) - len(kept),
    }


def _rows(kernels: Sequence[Kernel]) -> list[tuple[int, int]]:
    """The device and the row of each kernel: the first row of the device that is free by then."""
    busy: dict[int, list[float]] = {}
    rows: list[tuple[int, int]] = []
    for kernel in kernels:
        row = kernel.row
        if row is None:
            own = busy.setdefault(kernel.device, [])
            row = next((k for k, end in enumerate(own) if end <= kernel.start), len(own))
            own[row : row + 1] = [kernel.end]
        rows.append((kernel.device, row))
    return rows

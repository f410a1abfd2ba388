"""Simulates a schedule: when every action begins and ends, and how long a run takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.tra.paging.schedule import STREAMS, Fetch, Keep, Read, Run, Store

if TYPE_CHECKING:
    from eindecomp.tra.paging.schedule import Action, Schedule
    from eindecomp.tra.paging.workload import Links


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when an action is carried out."""

    action: int
    name: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """How long a run takes, and what its streams do meanwhile."""

    seconds: float
    spans: dict[str, tuple[Span, ...]]
    """By stream, in order."""

    def busy(self, stream: str) -> float:
        """For how many seconds a stream does something."""
        return sum(span.end - span.begin for span in self.spans[stream])

    def __str__(self) -> str:
        busy = ", ".join(f"{stream} {self.busy(stream):.6f} s" for stream in self.spans)
        return f"{self.seconds:.6f} s; busy: {busy}"


def simulate(schedule: Schedule, links: Links) -> Timeline:
    """Carry out a schedule's actions in their streams, each when all it waits for has ended."""
    spans: dict[str, list[Span]] = {stream: [] for stream in STREAMS}
    free: dict[str, float] = dict.fromkeys(STREAMS, 0.0)
    ends: list[float] = []
    for number, action in enumerate(schedule.actions):
        begin = max([free[action.stream], *(ends[wait] for wait in action.waits)])
        end = begin + _seconds(schedule, action, links)
        free[action.stream] = end
        ends.append(end)
        spans[action.stream].append(Span(number, _name(schedule, action), begin, end))
    done = {stream: tuple(found) for stream, found in spans.items()}
    return Timeline(max(free.values()), done)


def _seconds(schedule: Schedule, action: Action, links: Links) -> float:
    match action:
        case Run(task=task):
            return schedule.workload.tasks[task].seconds
        case Fetch():
            return links.latency + action.nbytes / links.to_gpu
        case Store():
            return links.latency + action.nbytes / links.to_host
        case Read():
            return links.latency + action.nbytes / links.from_disk
        case Keep():
            return links.latency + action.nbytes / links.within_gpu


def _name(schedule: Schedule, action: Action) -> str:
    if isinstance(action, Run):
        return schedule.workload.tasks[action.task].name
    return schedule.workload.tensors[action.tensor].name

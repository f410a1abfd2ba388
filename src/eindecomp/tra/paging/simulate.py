"""Simulates a schedule: when every action begins and ends, and how long a run takes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.tra.paging.schedule import STREAMS, TO_GPU, TO_HOST, Fetch, Keep, Read, Run, Store

if TYPE_CHECKING:
    from eindecomp.tra.paging.schedule import Action, Schedule
    from eindecomp.tra.paging.workload import Links

_LINK = {TO_GPU, TO_HOST}


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
    waiting: dict[str, deque[int]] = {stream: deque() for stream in STREAMS}
    for number, action in enumerate(schedule.actions):
        waiting[action.stream].append(number)
    spans: dict[str, list[Span]] = {stream: [] for stream in STREAMS}
    begun: dict[str, tuple[int, float]] = {}
    until: dict[str, float] = {}
    ended = [False] * len(schedule.actions)
    now, stretch = 0.0, 1.0
    while True:
        for stream, queue in waiting.items():
            if queue and stream not in begun:
                action = schedule.actions[queue[0]]
                if all(ended[wait] for wait in action.waits):
                    begun[stream] = queue.popleft(), now
                    slower = stretch if stream in _LINK else 1.0
                    until[stream] = now + slower * _seconds(schedule, action, links)
        wanted = 1 / links.both if begun.keys() >= _LINK else 1.0
        if wanted != stretch:  # both directions carry from now on, or no longer
            for stream in _LINK & begun.keys():
                until[stream] = now + (until[stream] - now) * wanted / stretch
            stretch = wanted
        if not begun:
            break
        stream = min(until, key=lambda stream: until[stream])
        now = until.pop(stream)
        number, begin = begun.pop(stream)
        ended[number] = True
        name = _name(schedule, schedule.actions[number])
        spans[stream].append(Span(number, name, begin, now))
    return Timeline(now, {stream: tuple(found) for stream, found in spans.items()})


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

"""Schedules: what an executor does on which stream, where in the arena, after what, how long."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.planner.costs.byte_sizes import show_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eindecomp.tra.paging.workload import Links, Staging, Workload


COMPUTE, TO_GPU, TO_HOST, DISK = "compute", "to GPU", "to host", "disk"
STREAMS = (COMPUTE, TO_GPU, TO_HOST, DISK)


@dataclass(frozen=True, slots=True)
class Stage:
    """Bytes `start` to `start + nbytes` of a tensor go from disk to a staging block."""

    tensor: int
    start: int
    nbytes: int
    block: int
    waits: tuple[int, ...] = ()
    stream = DISK


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bytes `start` to `start + nbytes` of a tensor go to its window, which begins at `offset`.

    They come from staging block `block`, or from the tensor's own memory on the host.
    """

    tensor: int
    offset: int
    start: int
    nbytes: int
    block: int | None = None
    waits: tuple[int, ...] = ()
    stream = TO_GPU


@dataclass(frozen=True, slots=True)
class Execute:
    """A task runs; `reads` and `writes` are offsets, in the order of the task's."""

    task: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    waits: tuple[int, ...] = ()
    stream = COMPUTE


@dataclass(frozen=True, slots=True)
class Store:
    """A tensor that a task has made goes from its window to memory of its own on the host."""

    tensor: int
    offset: int
    nbytes: int
    waits: tuple[int, ...] = ()
    stream = TO_HOST


@dataclass(frozen=True, slots=True)
class Keep:
    """A tensor that a task has made goes to the window of the resident that it renews."""

    tensor: int
    offset: int
    nbytes: int
    renews: int
    into: int
    waits: tuple[int, ...] = ()
    stream = COMPUTE


Action = Stage | Fetch | Execute | Store | Keep


@dataclass(frozen=True, slots=True)
class Window:
    """Where a tensor lies in the arena."""

    tensor: int
    offset: int


@dataclass(frozen=True)
class Schedule:
    """One run, which can be repeated: each begins when the one before it has ended.

    An action begins when the one before it on its stream and all actions in its `waits` (places
    in `actions`) have ended. Actions are listed such that they can be issued in that order: all
    that an action waits for comes before it.
    """

    workload: Workload
    arena: int
    """Bytes of the arena."""
    staging: Staging
    resident: tuple[Window, ...]
    """What is loaded before the first run and stays, or is renewed by every run."""
    actions: tuple[Action, ...]
    seconds: float = 0.0
    """What a run should take over the links that it was made for."""

    @property
    def fetched(self) -> int:
        """The bytes that go to the GPU in a run."""
        return sum(action.nbytes for action in self.actions if isinstance(action, Fetch))

    @property
    def stored(self) -> int:
        """The bytes that go to the host in a run."""
        return sum(action.nbytes for action in self.actions if isinstance(action, Store))

    @property
    def resident_bytes(self) -> int:
        """The bytes of tensors that stay in the arena between runs."""
        return sum(self.workload.tensors[window.tensor].nbytes for window in self.resident)

    @property
    def renewed(self) -> dict[int, int]:
        """The residents that a run renews, each with the tensor that is in its window then."""
        found = {w.tensor: self.workload.tensors[w.tensor].renewed_by for w in self.resident}
        return {number: new for number, new in found.items() if new is not None}

    def __str__(self) -> str:
        counts = Counter(type(action).__name__.lower() for action in self.actions)
        counted = ", ".join(f"{n} {kind}" for kind, n in counts.items())
        head = (
            f"{len(self.workload.tasks)} tasks in an arena of {show_bytes(self.arena)}: "
            f"{len(self.resident)} resident tensors of {show_bytes(self.resident_bytes)}, "
            f"{show_bytes(self.fetched)} fetched, {show_bytes(self.stored)} stored in a run "
            f"({counted})"
        )
        return "\n".join([head, *_aligned(list(self._rows()))])

    def _rows(self) -> Iterator[tuple[str, ...]]:
        yield "action", "stream", "does", "on", "where", "bytes", "waits for"
        for window in self.resident:
            tensor = self.workload.tensors[window.tensor]
            yield "", "", "stay", tensor.name, f"@{window.offset:,}", f"{tensor.nbytes:,}", ""
        for place, action in enumerate(self.actions):
            waits = " ".join(map(str, action.waits))
            kind = type(action).__name__.lower()
            yield str(place), action.stream, kind, *self._cells(action), waits

    def _cells(self, action: Action) -> tuple[str, str, str]:
        """On what an action is, where, and how many bytes it moves."""
        if isinstance(action, Execute):
            task = self.workload.tasks[action.task]
            reads, writes = (
                " ".join(
                    f"{self.workload.tensors[number].name}@{offset:,}"
                    for number, offset in zip(numbers, offsets, strict=True)
                )
                for numbers, offsets in ((task.reads, action.reads), (task.writes, action.writes))
            )
            return task.name, f"{reads} -> {writes}", ""
        tensor = self.workload.tensors[action.tensor]
        size = f"{action.nbytes:,}"
        match action:
            case Stage(block=block):
                return tensor.name, f"block {block}", size
            case Fetch(offset=offset, start=start, block=block):
                source = "" if block is None else f"block {block} -> "
                return tensor.name, f"{source}@{offset + start:,}", size
            case Store(offset=offset):
                return tensor.name, f"@{offset:,}", size
            case Keep(offset=offset, renews=renews, into=into):
                old = self.workload.tensors[renews].name
                return tensor.name, f"@{offset:,} -> {old}@{into:,}", size


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows of a table as lines, in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


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
        case Execute(task=task):
            return schedule.workload.tasks[task].seconds
        case Fetch():
            return links.latency + action.nbytes / links.to_gpu
        case Store():
            return links.latency + action.nbytes / links.to_host
        case Stage():
            return links.latency + action.nbytes / links.from_disk
        case Keep():
            return links.latency + action.nbytes / links.within_gpu


def _name(schedule: Schedule, action: Action) -> str:
    if isinstance(action, Execute):
        return schedule.workload.tasks[action.task].name
    return schedule.workload.tensors[action.tensor].name

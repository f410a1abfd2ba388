"""Schedules: what an executor does on which stream, where in the arena, after what, how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from eindecomp.planner.costs.byte_sizes import show_bytes
from eindecomp.tra.paging.workload import Links, Staging, Workload

COMPUTE, TO_GPU, TO_HOST, DISK = "compute", "to GPU", "to host", "disk"
STREAMS = (COMPUTE, TO_GPU, TO_HOST, DISK)


@dataclass(frozen=True, slots=True)
class Prefetch:
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


Action = Prefetch | Fetch | Execute | Store | Keep


class Touch(NamedTuple):
    """Bytes `start` to `stop` of a tensor that an action reads or writes in some memory."""

    memory: str
    """The arena, a block, or the tensor's own memory on the host or its file."""
    tensor: int
    offset: int
    """Where in the memory byte 0 of the tensor is, or would be."""
    start: int
    stop: int
    writes: bool

    @property
    def nbytes(self) -> int:
        """How many bytes it touches."""
        return self.stop - self.start

    @property
    def begin(self) -> int:
        """The first byte of the memory that it touches."""
        return self.offset + self.start

    @property
    def end(self) -> int:
        """The end of what it touches."""
        return self.offset + self.stop

    def __str__(self) -> str:
        return f"{self.memory}@{self.begin:,}"


ARENA = "arena"


def touches(workload: Workload, action: Action) -> list[Touch]:
    """The memory that an action reads, then what it writes."""
    if isinstance(action, Execute):
        task = workload.tasks[action.task]
        return [
            Touch(ARENA, tensor, offset, 0, workload.tensors[tensor].nbytes, writes)
            for used, offsets, writes in (
                (task.reads, action.reads, False),
                (task.writes, action.writes, True),
            )
            for tensor, offset in zip(used, offsets, strict=True)
        ]
    start, host = 0, (f"host {action.tensor}", 0)
    match action:
        case Prefetch(start=start, block=block):
            places = (f"disk {action.tensor}", 0), (f"block {block}", -start)
        case Fetch(start=start, block=block, offset=offset):
            places = host if block is None else (f"block {block}", -start), (ARENA, offset)
        case Store(offset=offset):
            places = (ARENA, offset), host
        case Keep(offset=offset, into=into):
            places = (ARENA, offset), (ARENA, into)
    return [
        Touch(memory, action.tensor, offset, start, start + action.nbytes, writes)
        for (memory, offset), writes in zip(places, (False, True), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class ResidentWindow:
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
    resident: tuple[ResidentWindow, ...]
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
        renewals = {w.tensor: self.workload.tensors[w.tensor].renewed_by for w in self.resident}
        return {number: new for number, new in renewals.items() if new is not None}

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
            on = self.workload.tasks if isinstance(action, Execute) else self.workload.tensors
            number = action.task if isinstance(action, Execute) else action.tensor
            touched = touches(self.workload, action)
            reads = " ".join(str(touch) for touch in touched if not touch.writes)
            writes = " ".join(str(touch) for touch in touched if touch.writes)
            nbytes = "" if isinstance(action, Execute) else f"{action.nbytes:,}"
            waits = " ".join(map(str, action.waits))
            kind = type(action).__name__.lower()
            where = f"{reads} -> {writes}"
            yield str(place), action.stream, kind, on[number].name, where, nbytes, waits


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows of a table as lines, in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (zip(row, widths, strict=True) for row in rows)
    return ["  ".join(cell.ljust(width) for cell, width in line).rstrip() for line in lines]


class ActionSpan(NamedTuple):
    """From when to when an action is carried out."""

    begin: float
    end: float


def simulate(schedule: Schedule, links: Links) -> list[ActionSpan]:
    """When each action is carried out, which is as soon as all it waits for has ended."""
    spans: list[ActionSpan] = []
    latest: dict[str, float] = dict.fromkeys(STREAMS, 0.0)
    for action in schedule.actions:
        begin = max(latest[action.stream], *(spans[wait].end for wait in action.waits), 0.0)
        latest[action.stream] = begin + _seconds(schedule, action, links)
        spans.append(ActionSpan(begin, latest[action.stream]))
    return spans


def predicted_seconds(schedule: Schedule, links: Links) -> float:
    """How long a run of a schedule takes."""
    return max((span.end for span in simulate(schedule, links)), default=0.0)


def _seconds(schedule: Schedule, action: Action, links: Links) -> float:
    match action:
        case Execute(task=task):
            return schedule.workload.tasks[task].seconds
        case Fetch():
            pace = links.to_gpu
        case Store():
            pace = links.to_host
        case Prefetch():
            pace = links.from_disk
        case Keep():
            pace = links.within_gpu
    return links.latency + action.nbytes / pace

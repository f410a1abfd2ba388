"""The task graph: what each device does, which pieces it receives from whom, in which order.

Tasks are typed records. Those of one vertex form a step; steps run in the order of the graph. A
tensor lives in *stores*: its home, a further layout, partial results that wait to be reduced, or as
it was given.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eindecomp.planner.plan import Plan
    from eindecomp.tra.boxes import Box


KINDS: tuple[str, ...] = ("fetch", "keep", "compute", "reduce", "replicate")


class Layout(Enum):
    """In which of its stores a tensor is read."""

    GIVEN = "given"
    HOME = "home"
    FURTHER = "further"
    PARTIAL = "partial"


@dataclass(frozen=True, slots=True)
class Store:
    """One layout of one tensor, over all devices."""

    tensor: str
    layout: Layout

    def __str__(self) -> str:
        plain = self.layout in (Layout.HOME, Layout.GIVEN)
        return self.tensor if plain else f"{self.tensor} ({self.layout.value})"


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of a store that a device receives from another."""

    source: int
    box: Box


@dataclass(frozen=True, slots=True)
class Fetch:
    """A device brings together what it needs of a tensor: its own part, and pieces of others."""

    device: int
    vertex: str
    """For which vertex; for a further layout, whose."""
    store: Store
    box: Box
    pieces: tuple[Piece, ...]
    moved: int
    """Bytes that the device receives."""


@dataclass(frozen=True, slots=True)
class Compute:
    """One kernel call: a tile of a vertex, or a part of its sum."""

    device: int
    vertex: str
    reads: tuple[Box | None, ...]
    """The block of each input; None for one whose elements are never read."""
    box: Box
    into: Store


@dataclass(frozen=True, slots=True)
class Reduce:
    """Partial results of several devices are combined, in the order of `members`, and finished."""

    device: int
    vertex: str
    box: Box
    members: tuple[int, ...]
    moved: int


@dataclass(frozen=True, slots=True)
class Replicate:
    """A device receives what others have reduced of a block that they all are to hold."""

    device: int
    vertex: str
    box: Box
    pieces: tuple[Piece, ...]
    moved: int


Task = Fetch | Compute | Reduce | Replicate


@dataclass(frozen=True, slots=True)
class Step:
    """The tasks of one kind that belong to one vertex, by device."""

    kind: str
    vertex: str
    tasks: tuple[Task, ...]

    @property
    def moved(self) -> int:
        """Bytes that devices receive."""
        return sum(getattr(task, "moved", 0) for task in self.tasks)


@dataclass(frozen=True)
class TaskGraph:
    """A plan as tasks, in an order that can be carried out one by one."""

    plan: Plan
    steps: tuple[Step, ...]
    last_use: Mapping[Store, int]
    """The last step that reads a store; those of outputs are not in it."""

    @property
    def tasks(self) -> Iterator[Task]:
        """All tasks in order."""
        return (task for step in self.steps for task in step.tasks)

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many tasks there are of each kind."""
        found = Counter(dict.fromkeys(KINDS, 0))
        for step in self.steps:
            found[step.kind] += len(step.tasks)
        return dict(found)

    @cached_property
    def bytes_by_kind(self) -> dict[str, int]:
        """The bytes that each kind of task moves."""
        found = Counter({kind: 0 for kind in KINDS if kind != "compute"})
        for step in self.steps:
            if step.kind != "compute":
                found[step.kind] += step.moved
        return dict(found)

    @cached_property
    def bytes_by_vertex(self) -> dict[str, int]:
        """The bytes that are moved for each vertex."""
        found = Counter(dict.fromkeys(self.plan.decisions, 0))
        for step in self.steps:
            found[step.vertex] += step.moved
        return dict(found)

    @property
    def moved(self) -> int:
        """All bytes that devices receive."""
        return sum(self.bytes_by_kind.values())

    def __str__(self) -> str:
        counted = ", ".join(f"{n} {kind}" for kind, n in self.counts.items() if n)
        lines = [f"{sum(self.counts.values())} tasks on {self.plan.devices} devices: {counted}"]
        lines.append(f"{self.moved:,} bytes move")
        for number, step in enumerate(self.steps):
            dead = [str(store) for store, last in self.last_use.items() if last == number]
            lines.append(f"step {number}: {step.kind} {self.plan.graph[step.vertex]}")
            lines += [f"  {show(task)}" for task in step.tasks]
            lines += [f"  free {', '.join(dead)}"] if dead else []
        return "\n".join(lines)


def show(task: Task) -> str:
    """A task in one line."""
    at = f"device {task.device}: "
    match task:
        case Fetch():
            origin = ", ".join(f"{_block(p.box)} from {p.source}" for p in task.pieces)
            return f"{at}{task.store}{_block(task.box)}: {origin or 'all its own'}"
        case Compute():
            reads = ", ".join("-" if box is None else _block(box) for box in task.reads)
            return f"{at}{task.into}{_block(task.box)} from {reads or 'nothing'}"
        case Reduce():
            members = ", ".join(map(str, task.members))
            return f"{at}{_block(task.box)} of {members}"
        case Replicate():
            origin = ", ".join(f"{_block(p.box)} from {p.source}" for p in task.pieces)
            return f"{at}{_block(task.box)}: {origin or 'all its own'}"


def _block(box: Box) -> str:
    return f"[{', '.join(f'{low}:{high}' for low, high in box)}]"

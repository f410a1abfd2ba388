"""Workloads: tasks in a fixed order, the tensors they use, and the links that carry these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from math import inf

from eindecomp.errors import PlanError


class Begins(Enum):
    """Where a tensor is when a run begins."""

    HOST = "host"
    """In pinned memory of the host, where it stays as it is."""
    DISK = "disk"
    """In a file, where it stays as it is."""
    MADE = "made"
    """Nowhere: a task writes it."""


@dataclass(frozen=True, slots=True)
class Paged:
    """A tensor, or a tile of one, that has one window of the arena at a time."""

    number: int
    """Its place in `Workload.tensors`."""
    name: str
    nbytes: int
    begins: Begins
    is_result: bool = False
    """Whether it must be on the host when a run has ended."""
    lasting: bool = True
    """Whether every run finds the same contents on the host or the disk: it may be resident."""
    renewed_by: int | None = None
    """The tensor that a run makes and that the next run reads in the place of this one, if any.

    If this one is resident, the other one is kept in its window and need not end on the host.
    """

    @property
    def made(self) -> bool:
        """Whether a task writes it."""
        return self.begins is Begins.MADE

    @property
    def may_stay(self) -> bool:
        """Whether it may be resident: its window has what a run reads when that begins."""
        return not self.made and (self.lasting or self.renewed_by is not None)


@dataclass(frozen=True, slots=True)
class Task:
    """Some work on the GPU: all that it reads and writes is in the arena meanwhile."""

    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    workspace: int = 0
    """Bytes that it needs inside itself, outside the arena."""
    seconds: float = 0.0

    @property
    def tensors(self) -> tuple[int, ...]:
        """All that it uses, each once."""
        return tuple(dict.fromkeys(self.reads + self.writes))


@dataclass(frozen=True)
class Workload:
    """Tasks in the order in which they run, and their tensors by number."""

    tensors: tuple[Paged, ...]
    tasks: tuple[Task, ...]

    def __post_init__(self) -> None:
        for place, tensor in enumerate(self.tensors):
            if tensor.number != place:
                raise PlanError(f"{tensor.name}: number {tensor.number}, but it is at {place}")
        there = {tensor.number for tensor in self.tensors if not tensor.made}
        for task in self.tasks:
            self._check(task, there)
            there.update(task.writes)
        for tensor in self.tensors:
            if tensor.number not in there:
                raise PlanError(f"{tensor.name}: no task writes it")
        self._check_renewed()

    def _check(self, task: Task, there: set[int]) -> None:
        if any(not 0 <= number < len(self.tensors) for number in task.tensors):
            raise PlanError(f"{task.name}: {task.tensors} are not all numbers of tensors")
        for number in task.reads:
            if number not in there:
                raise PlanError(
                    f"{task.name}: reads {self.tensors[number].name} before it is written"
                )
        for number in task.writes:
            if number in there or task.writes.count(number) > 1:
                raise PlanError(
                    f"{task.name}: writes {self.tensors[number].name}, which is there already"
                )

    def _check_renewed(self) -> None:
        seen: set[int] = set()
        for tensor in self.tensors:
            number = tensor.renewed_by
            if number is None:
                continue
            if tensor.made or tensor.lasting or tensor.is_result:
                raise PlanError(f"{tensor.name}: only what runs are given anew can be renewed")
            new = self.tensors[number] if 0 <= number < len(self.tensors) else tensor
            if not new.made or not new.is_result or number in seen:
                raise PlanError(f"{tensor.name}: {new.name} is not a result of its own")
            if new.nbytes != tensor.nbytes:
                raise PlanError(
                    f"{tensor.name}: has {tensor.nbytes:,} bytes, but {new.name} {new.nbytes:,}"
                )
            seen.add(number)

    def renewals(self, resident: Iterable[int]) -> dict[int, dict[int, int]]:
        """By task, which tensors are kept when it has ended, each by the resident that it renews.

        That is when they are made and all tasks have run that read what they renew.
        """
        kept: dict[int, dict[int, int]] = {}
        for number in resident:
            new = self.tensors[number].renewed_by
            if new is not None:
                last = max((self.uses[new][0], *self.uses[number][-1:]))
                kept.setdefault(last, {})[number] = new
        return kept

    @cached_property
    def uses(self) -> tuple[tuple[int, ...], ...]:
        """For every tensor the tasks that use it."""
        uses: list[list[int]] = [[] for _ in self.tensors]
        for place, task in enumerate(self.tasks):
            for number in task.tensors:
                uses[number].append(place)
        return tuple(map(tuple, uses))

    @cached_property
    def workspace(self) -> int:
        """The largest workspace of a task."""
        return max((task.workspace for task in self.tasks), default=0)


@dataclass(frozen=True, slots=True)
class Links:
    """What carries tensors: bytes per second, and seconds that every transfer takes beside."""

    to_gpu: float
    to_host: float
    from_disk: float
    latency: float = 0.0
    within_gpu: float = inf
    """From one window of the arena to another."""


@dataclass(frozen=True, slots=True)
class Staging:
    """A ring of pinned blocks on the host through which tensors on disk go to the GPU."""

    block: int = 32 << 20
    """The bytes of one block."""
    blocks: int = 8

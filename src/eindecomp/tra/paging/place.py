"""Places tensors: which window each has while a task uses it, what is fetched and what leaves.

Tasks are gone through in order. What a task reads and is not there gets the window that is free
earliest, so that it is fetched as early as possible; as windows are handed out in the order of
use, a fetch ahead of time never takes room that an earlier task needs. Where nothing is free, what
is needed again latest, and is cheap to bring back, leaves.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import NamedTuple

from eindecomp.tra.paging.workload import Begins, Links, Paged, Workload

START = -1
"""The task after which everything is free that no task has used yet."""


class ArenaPart(NamedTuple):
    """A piece of the arena: a hole, or a tensor's window."""

    start: int
    end: int
    since: int
    """The last task that uses it."""
    price: float = 0.0
    """What it costs to have it free: nothing for a hole, infinity where a tensor must stay."""
    tensor: int | None = None


class Arena:
    """The holes between the bytes `begin` and `end`, in order.

    Fetches are carried out in the order in which they are asked for. What is free before the last
    of them can begin counts as free from then on, when task `settled` has ended.
    """

    def __init__(self, begin: int, end: int) -> None:
        self.settled = START
        self._holes = [ArenaPart(begin, end, START)] if begin < end else []

    def release(self, start: int, size: int, since: int) -> None:
        """A window is free when a task has ended."""
        insort(self._holes, ArenaPart(start, start + size, since))

    def take(self, start: int, size: int) -> None:
        """Fill a window that is free."""
        end = start + size
        left: list[ArenaPart] = []
        for hole in self._holes:
            if hole.start < min(hole.end, start):
                left.append(hole._replace(end=min(hole.end, start)))
            if max(hole.start, end) < hole.end:
                left.append(hole._replace(start=max(hole.start, end)))
        self._holes = left

    def settle(self, since: int) -> None:
        """Nothing counts as free before this task has ended."""
        self.settled = max(self.settled, since)
        self._holes = self.holes(self.settled)

    def holes(self, by: int) -> list[ArenaPart]:
        """All holes, those that are free when task `by` has ended as large as they are then."""
        holes: list[ArenaPart] = []
        for hole in self._holes:
            ready = hole._replace(since=max(hole.since, by))
            if holes and holes[-1].end == ready.start and holes[-1].since == ready.since == by:
                ready = holes.pop()._replace(end=ready.end)
            holes.append(ready)
        return holes


def cheapest(parts: Sequence[ArenaPart], size: int) -> Sequence[ArenaPart]:
    """The neighbours of least price that have so many bytes together; none if none have.

    `parts` are in order; what lies between two of them is not to be had. Of equal ones those are
    chosen that are free earliest, then those that fit best.
    """
    best, chosen = (inf, 0, 0), slice(0)
    first, price = 0, 0.0
    for last, part in enumerate(parts):
        if part.price == inf:
            first, price = last + 1, 0.0
            continue
        if last > first and parts[last - 1].end < part.start:
            first, price = last, 0.0
        price += part.price
        while part.end - parts[first].end >= size:
            price -= parts[first].price
            first += 1
        room = part.end - parts[first].start
        if room >= size and price <= best[0]:
            since = max(each.since for each in parts[first : last + 1])
            if (price, since, room) < best:
                best, chosen = (price, since, room), slice(first, last + 1)
    return parts[chosen]


class TransferClock:
    """When tasks and transfers end if only tasks wait for fetches, and stores for tasks."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self.computed = list(accumulate(seconds))
        """When tasks would end if they waited for nothing."""
        self.ended: list[float] = []
        """When the tasks so far have ended."""
        self.fetched = 0.0
        self.stored = 0.0

    def run(self, task: int) -> None:
        """The next task runs."""
        late = self.ended[-1] - self.computed[task - 1] if self.ended else 0.0
        self.ended.append(max(self.computed[task] + late, self.fetched))

    def store(self, made: int, seconds: float) -> int:
        """Store what a task has made: the task by whose end the transfer has ended, too."""
        self.stored = max(self.stored, self.ended[made]) + seconds
        late = self.ended[-1] - self.computed[len(self.ended) - 1]
        return bisect_left(self.computed, self.stored - late)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A tensor is fetched to a window that is free when task `after` has ended."""

    tensor: int
    offset: int
    after: int


@dataclass(slots=True)
class Placement:
    """Where tensors lie, task by task."""

    resident: Mapping[int, int]
    """The offsets of those that stay."""
    renewals: Mapping[int, Mapping[int, int]]
    """By task, which tensors are kept when it has ended, each by the resident that it renews."""
    arrivals: list[Arrival] = field(default_factory=list[Arrival])
    """In the order in which they are fetched."""
    stores: dict[int, int] = field(default_factory=dict[int, int])
    """The tensors that go to the host after they are made, with their windows' offsets."""
    offsets: list[dict[int, int]] = field(default_factory=list[dict[int, int]])
    """For every task where its tensors lie."""


class Placer:
    """The arena between two tasks, and what has been decided for the tasks so far.

    `resident` tensors lie below all others, at fixed offsets; every task's tensors must fit in the
    arena beside them. `sizes` are the bytes of the tensors' windows.
    """

    def __init__(
        self,
        workload: Workload,
        sizes: Sequence[int],
        arena: int,
        resident: Mapping[int, int],
        links: Links,
    ) -> None:
        self.workload, self.sizes, self.resident = workload, sizes, resident
        self.arena = Arena(sum(sizes[number] for number in resident), arena)
        self.placement = Placement(resident, workload.renewals(resident))
        self.uses = [*workload.uses]
        """For every tensor the tasks that use it, or by whose end it is kept."""
        self.kept: set[int] = set()
        for task, renewals in self.placement.renewals.items():
            self.kept.update(renewals.values())
            for number in renewals.values():
                self.uses[number] = tuple(sorted({*self.uses[number], task}))
        self.at: dict[int, int] = {}
        """The offsets of the tensors that are in the arena and needed again."""
        self.used = [0] * len(sizes)
        """How many of a tensor's uses have been placed."""
        self.free_by = [START] * len(sizes)
        """The task by whose end nobody uses a tensor's window, nor likely a store to the host."""
        self.clock = TransferClock([task.seconds for task in workload.tasks])
        self.fetch_seconds = [fetch_seconds(tensor, links) for tensor in workload.tensors]
        self.store_seconds = [store_seconds(tensor, links) for tensor in workload.tensors]

    def place(self) -> Placement:
        """Windows for all tasks."""
        for number, task in enumerate(self.workload.tasks):
            kept = self.placement.renewals.get(number, {})
            self._place_task(number, (*task.reads, *kept.values()), task.writes)
        return self.placement

    def _place_task(self, task: int, reads: Sequence[int], writes: Sequence[int]) -> None:
        """Give a task's tensors windows; afterwards let go of those that are not used again."""
        own = [number for number in dict.fromkeys((*reads, *writes)) if number not in self.resident]
        arrivals = self._arrive(task, own, writes)
        if arrivals is None or not self._make_room(task, own, writes):
            arrivals = self._pack(task, own, writes)
        self.placement.arrivals += arrivals
        offsets = {number: self.at[number] for number in own}
        offsets |= {n: self.resident[n] for n in (*reads, *writes) if n in self.resident}
        self.placement.offsets.append(offsets)
        self._finish(task, own, writes)

    def _arrive(self, task: int, own: Sequence[int], writes: Sequence[int]) -> list[Arrival] | None:
        """Windows for what a task reads and is not there, large ones first."""
        missing = [number for number in own if number not in self.at and number not in writes]
        arrivals: list[Arrival] = []
        for number in sorted(missing, key=lambda number: -self.sizes[number]):
            offset = self._free_early(task, self.sizes[number], own)
            if offset is None:
                return None
            arrivals.append(self._fetch(task, number, offset))
        return arrivals

    def _free_early(self, task: int, size: int, own: Collection[int]) -> int | None:
        """The offset of a window for a fetch, which may begin when `arena.settled` has ended."""
        chosen = self._freed(task, size, own, self.arena.settled)
        if not chosen:
            return None
        self.arena.settle(max(part.since for part in chosen))
        return chosen[0].start

    def _make_room(self, task: int, own: Sequence[int], writes: Sequence[int]) -> bool:
        """Windows for what a task writes; whether there are any.

        They are at the upper ends of holes, and what is fetched at the lower ones, so that small
        results do not lie between large weights.
        """
        for number in sorted(writes, key=lambda number: -self.sizes[number]):
            chosen = self._freed(task, self.sizes[number], own, task - 1)
            if not chosen:
                return False
            self._enter(number, chosen[-1].end - self.sizes[number])
        return True

    def _freed(self, task: int, size: int, own: Collection[int], by: int) -> Sequence[ArenaPart]:
        """The window to use: free after task `by` if there is one, else as early as possible.

        Where none is free, those tensors leave that are cheapest to bring back and needed latest.
        """
        parts = self.arena.holes(by)
        for number, offset in self.at.items():
            price = inf if number in own else self._price(task, number)
            end = offset + self.sizes[number]
            parts.append(ArenaPart(offset, end, self.free_by[number], price, number))
        chosen = cheapest(sorted(parts), size)
        for part in chosen:
            if part.tensor is not None:
                self._drop(part.tensor)
        return chosen

    def _price(self, task: int, number: int) -> float:
        """What it costs that a tensor leaves, the less the longer its room can be used."""
        seconds = self.fetch_seconds[number]
        if number not in self.placement.stores:
            seconds += self.store_seconds[number]
        return seconds / (self.uses[number][self.used[number]] - task)

    def _fetch(self, task: int, number: int, offset: int) -> Arrival:
        """Put a tensor in a free window; what a task has made comes back after it is stored."""
        if number in self.placement.stores:
            self.arena.settle(self.uses[number][0])
        self._enter(number, offset)
        self.clock.fetched += self.fetch_seconds[number]
        return Arrival(number, offset, min(self.arena.settled, task - 1))

    def _enter(self, number: int, offset: int) -> None:
        self.arena.take(offset, self.sizes[number])
        self.at[number] = offset

    def _pack(self, task: int, own: Sequence[int], writes: Sequence[int]) -> list[Arrival]:
        """Lay a task's tensors side by side, where free bytes are enough but lie scattered.

        What it reads and was there is fetched again.
        """
        for number in own:
            if number in self.at:
                self.free_by[number] = max(self.free_by[number], task - 1)
                self._drop(number)
        size = sum(self.sizes[number] for number in own)
        offset = self._free_early(task, size, ())
        if offset is None:
            raise AssertionError(f"task {task} fits in an arena that is empty otherwise")
        arrivals: list[Arrival] = []
        for number in own:
            if number in writes:
                self._enter(number, offset)
            else:
                arrivals.append(self._fetch(task, number, offset))
            offset += self.sizes[number]
        return arrivals

    def _finish(self, task: int, own: Sequence[int], writes: Sequence[int]) -> None:
        """Let go of what is not used again, and store what must end on the host."""
        self.clock.run(task)
        for number in own:
            self.used[number] += 1
            self.free_by[number] = max(self.free_by[number], task)
            is_result = self.workload.tensors[number].is_result
            if number in writes and is_result and number not in self.kept:
                self._store(number, self.at[number])
            if self.used[number] == len(self.uses[number]):
                self.arena.release(self.at.pop(number), self.sizes[number], self.free_by[number])

    def _drop(self, number: int) -> None:
        """A tensor leaves its window; if a task has made it, it is on the host by then."""
        offset = self.at.pop(number)
        if self.workload.tensors[number].made and self.used[number]:
            self._store(number, offset)
        self.arena.release(offset, self.sizes[number], self.free_by[number])

    def _store(self, number: int, offset: int) -> None:
        """A tensor that has been made goes to the host, once."""
        if number not in self.placement.stores:
            self.placement.stores[number] = offset
            made = self.uses[number][0]
            done = self.clock.store(made, self.store_seconds[number])
            self.free_by[number] = max(self.free_by[number], done)


def fetch_seconds(tensor: Paged, links: Links) -> float:
    """How long a tensor takes to the GPU, at the pace of the slowest link on its way."""
    on_disk = tensor.begins is Begins.DISK
    pace = min(links.to_gpu, links.from_disk) if on_disk else links.to_gpu
    return links.latency + tensor.nbytes / pace


def store_seconds(tensor: Paged, links: Links) -> float:
    """How long a tensor takes to the host, if it is not there anyway."""
    return links.latency + tensor.nbytes / links.to_host if tensor.made else 0.0

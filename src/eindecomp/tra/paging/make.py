"""Makes schedules: keeps those tensors resident with which a run is predicted to be fastest.

Amounts and orders of resident tensors are tried. Each byte that stays is a byte less to fetch, but
also a byte less in which to fetch ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from math import inf
from typing import TypeVar

from eindecomp.errors import PlanError
from eindecomp.tra.paging.issue import issue
from eindecomp.tra.paging.place import Placer
from eindecomp.tra.paging.schedule import Fetch, ResidentWindow, Schedule, predicted_seconds
from eindecomp.tra.paging.workload import Begins, Links, Staging, Workload
from eindecomp.tra.tiles.ops import ALIGNMENT, window_bytes


class ArenaTooSmallError(PlanError):
    """The tensors of one task do not fit in the arena; `missing` bytes more are needed."""

    def __init__(self, task: str, needed: int, available: int) -> None:
        self.task = task
        self.needed = needed
        self.available = available
        super().__init__(
            f"{task}: its tensors take {needed:,} bytes at once, but beside torch's own memory the "
            f"limit leaves {max(0, available):,} bytes for tensors on the GPU: "
            f"{self.missing:,} bytes are missing"
        )

    def __reduce__(self) -> tuple[type, tuple[str, int, int]]:
        return ArenaTooSmallError, (self.task, self.needed, self.available)

    @property
    def missing(self) -> int:
        """How many bytes more the arena would need."""
        return self.needed - self.available


def arena_bytes(workload: Workload, memory: int, margin: int = 0) -> int:
    """What a memory limit leaves for tensors, beside the largest workspace and a margin.

    If that is less than nothing, so many bytes are missing for those alone.
    """
    left = memory - workload.workspace - margin
    return left // ALIGNMENT * ALIGNMENT


def check_arena(workload: Workload, arena: int, resident: Sequence[int] = ()) -> None:
    """Raise an error if a task's tensors do not fit in the arena beside the resident ones."""
    for number in resident:
        tensor = workload.tensors[number]
        if not tensor.may_stay:
            raise PlanError(f"{tensor.name}: differs from run to run, so it cannot be resident")
    sizes = [window_bytes(tensor.nbytes) for tensor in workload.tensors]
    available = arena - sum(sizes[number] for number in resident)
    task, needed = largest_task(workload, sizes, resident)
    if needed > available:
        raise ArenaTooSmallError(task, needed, available)


def make_schedule(
    workload: Workload,
    links: Links,
    arena: int,
    staging: Staging | None = None,
    resident: Sequence[int] | None = None,
) -> Schedule:
    """The schedule of a workload in an arena of so many bytes, or of fewer where all fit in them.

    Which tensors are resident is chosen by prediction unless they are given.
    """
    arena = arena // ALIGNMENT * ALIGNMENT
    sizes = [window_bytes(tensor.nbytes) for tensor in workload.tensors]
    staging = staging or Staging()
    check_arena(workload, arena)
    arena = min(arena, sum(sizes))

    def make(resident: Sequence[int]) -> Schedule:
        ends = accumulate((sizes[number] for number in resident), initial=0)
        at = dict(zip(resident, ends, strict=False))  # side by side
        placement = Placer(workload, sizes, arena, at, links).place()
        actions = issue(workload, placement, staging)
        windows = tuple(ResidentWindow(*window) for window in at.items())
        return Schedule(workload, arena, staging, windows, actions)

    if resident is not None:
        resident = tuple(dict.fromkeys(resident))
        check_arena(workload, arena, resident)
    schedule = fastest(make, sizes, links) if resident is None else make(resident)
    return replace(schedule, seconds=predicted_seconds(schedule, links))


T = TypeVar("T")
STEPS = 8
"""Into how many steps the arena is cut for a first look at amounts."""
REFINEMENTS = 3
"""How often the step is halved near the best amount."""
GAIN = 1e-3
"""What is not faster by so much of the time is not tried."""
WORK = 12_000
"""How many tasks and tensors are planned for, in all trials together, unless one has more."""
SPREAD = 0.618034
"""The golden ratio: any number of its multiples, modulo 1, lie evenly between 0 and 1."""


def fastest(
    make: Callable[[tuple[int, ...]], Schedule], sizes: Sequence[int], links: Links
) -> Schedule:
    """The schedule with the fastest predicted run, of those that `make` gives for some tensors."""
    best = make(())
    workload, arena = best.workload, best.arena
    seconds: dict[tuple[int, ...], float] = {(): predicted_seconds(best, links)}
    size = len(workload.tasks) + len(workload.tensors)
    left = max(4, min(24, WORK // (size + 1)))  # how many more are tried

    def tried(order: Sequence[int], amount: int) -> float:
        """How long a run takes; infinitely long where it is no use to know it."""
        nonlocal best, left
        chosen, least = fitting(workload, sizes, arena, order, amount), min(seconds.values())
        if chosen not in seconds:
            if left == 0 or _least_seconds(workload, links, {*chosen}) > (1 - GAIN) * least:
                return inf
            left -= 1
            schedule = make(chosen)
            seconds[chosen] = predicted_seconds(schedule, links)
            if seconds[chosen] < least:
                best = schedule
        return seconds[chosen]

    for order in list(_orders(best)):
        # The first of an order stay, by steps of the arena, then by smaller ones near the best.
        step = max(1, arena // STEPS)
        scores = {amount: tried(order, amount) for amount in range(arena, 0, -step)}
        for _ in range(REFINEMENTS):
            step //= 2
            middle = min(scores, key=lambda amount: scores[amount])
            for amount in (middle + step, middle - step):
                if 0 < amount <= arena:
                    scores[amount] = tried(order, amount)
    return best


def _least_seconds(workload: Workload, links: Links, resident: set[int]) -> float:
    """No run takes less: all tasks compute, and all that is not resident comes and goes once."""
    tensors = workload.tensors
    kept = {tensors[number].renewed_by for number in resident}
    coming = on_disk = leaving = 0
    for tensor in tensors:
        if tensor.made and tensor.is_result and tensor.number not in kept:
            leaving += tensor.nbytes
        elif not tensor.made and workload.uses[tensor.number] and tensor.number not in resident:
            coming += tensor.nbytes
            on_disk += tensor.nbytes if tensor.begins is Begins.DISK else 0
    computing = sum(task.seconds for task in workload.tasks)
    transfers = coming / links.to_gpu, leaving / links.to_host, on_disk / links.from_disk
    return max(computing, *transfers)


def _orders(schedule: Schedule) -> Iterator[list[int]]:
    """Orders in which tensors may stay; those that the first task reads always come first.

    Evenly spread, so that the link has the same head start everywhere; those on disk first, where
    others are not; as they are used; and those first that are fetched most often, where some are
    fetched more often than others.
    """
    uses = schedule.workload.uses
    may_stay = [t.number for t in schedule.workload.tensors if t.may_stay]
    first_used = sorted((n for n in may_stay if uses[n]), key=lambda number: uses[number][0])
    if not first_used:
        return
    start = uses[first_used[0]][0]
    first = [number for number in first_used if uses[number][0] == start]
    others = first_used[len(first) :]
    evenly = first + spread(others)
    yield evenly
    tensors = schedule.workload.tensors
    if len({tensors[number].begins for number in evenly}) > 1:
        yield sorted(evenly, key=lambda number: tensors[number].begins is not Begins.DISK)
    yield first_used
    fetches = (action for action in schedule.actions if isinstance(action, Fetch))
    counts = Counter(fetch.tensor for fetch in fetches if not fetch.start)
    if len({counts[number] for number in first_used}) > 1:
        yield sorted(evenly, key=lambda number: -counts[number])


def spread(items: Sequence[T]) -> list[T]:
    """Items in an order in which any number of the first lie evenly among all.

    >>> spread(range(5))
    [4, 1, 3, 0, 2]
    """
    places = {place: place * SPREAD % 1 for place in range(1, len(items) + 1)}
    return [items[place - 1] for place in sorted(places, key=lambda place: places[place])]


def fitting(
    workload: Workload, sizes: Sequence[int], arena: int, order: Sequence[int], amount: int
) -> tuple[int, ...]:
    """The first tensors of an order, up to an amount of bytes, beside which every task fits."""
    while True:
        chosen: dict[int, None] = {}
        left = amount
        for number in order:
            if sizes[number] <= left:
                chosen[number] = None
                left -= sizes[number]
        taken = sum(sizes[number] for number in chosen)
        excess = taken + largest_task(workload, sizes, chosen)[1] - arena
        if excess <= 0:
            return tuple(chosen)
        amount = taken - excess


def largest_task(
    workload: Workload, sizes: Sequence[int], resident: Collection[int] = ()
) -> tuple[str, int]:
    """The task whose tensors take most bytes beside the resident ones, and these."""
    kept = workload.renewals(resident)
    largest, most = "", 0
    for place, task in enumerate(workload.tasks):
        used = {*task.tensors, *kept.get(place, {}).values()}
        needed = sum(sizes[number] for number in used if number not in resident)
        if needed > most or not largest:
            largest, most = task.name, needed
    return largest, most

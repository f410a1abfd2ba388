"""Chooses resident tensors: amounts and orders are tried, and the fastest prediction is kept.

Each byte that stays is a byte less to fetch, but also a byte less in which to fetch ahead.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from eindecomp.tra.paging.schedule import Fetch
from eindecomp.tra.paging.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

    from eindecomp.tra.paging.schedule import Schedule
    from eindecomp.tra.paging.workload import Links, Workload

STEPS = 8
"""Into how many steps the arena is cut for a first look at amounts."""
SPREAD = 0.618034
"""The golden ratio: any number of its multiples, modulo 1, lie evenly between 0 and 1."""


def fastest(
    make: Callable[[tuple[int, ...]], Schedule], sizes: Sequence[int], links: Links
) -> Schedule:
    """The schedule with the fastest predicted run, of those that `make` gives for some tensors."""
    trials = _Trials(make, sizes, links, make(()))
    return trials.search()


@dataclass
class _Trials:
    """What has been tried, and the best of it."""

    make: Callable[[tuple[int, ...]], Schedule]
    sizes: Sequence[int]
    links: Links
    best: Schedule
    scores: dict[frozenset[int], tuple[float, int]] = field(
        default_factory=dict[frozenset[int], tuple[float, int]]
    )

    def search(self) -> Schedule:
        """Try several orders until nothing is left to gain: tasks wait for nothing."""
        workload, least = self.best.workload, self._score(self.best)
        self.scores[frozenset()] = least
        computing = sum(task.seconds for task in workload.tasks)
        most = max(6, min(16, 10_000 // (len(workload.tasks) + 1)))
        for order in list(_orders(self.best)):
            if min(self.scores.values())[0] <= computing * 1.001:
                break
            self._try_order(order, most)
        return self.best

    def _try_order(self, order: Sequence[int], most: int) -> None:
        """Keep the first of an order, by steps of the arena, then by smaller ones near the best."""
        arena = self.best.arena
        step = max(1, arena // min(STEPS, most))
        scores = {amount: self._try(order, amount) for amount in range(arena, 0, -step)}
        while (step := step // 2) and len(scores) < most:
            middle = min(scores, key=lambda amount: scores[amount])
            for amount in (middle + step, middle - step):
                if 0 < amount <= arena:
                    scores[amount] = self._try(order, amount)

    def _try(self, order: Sequence[int], amount: int) -> tuple[float, int]:
        chosen = fitting(self.best.workload, self.sizes, self.best.arena, order, amount)
        key = frozenset(chosen)
        if key not in self.scores:
            schedule = self.make(chosen)
            score = self._score(schedule)
            if score < min(self.scores.values()):
                self.best = schedule
            self.scores[key] = score
        return self.scores[key]

    def _score(self, schedule: Schedule) -> tuple[float, int]:
        return simulate(schedule, self.links).seconds, schedule.fetched


def _orders(schedule: Schedule) -> Iterator[list[int]]:
    """Orders in which tensors may be kept; those that the first task reads always come first.

    Evenly spread, so that the link has the same head start everywhere; as they are used; and those
    first that are fetched most often, where some are fetched more often than others.
    """
    uses = schedule.workload.uses
    lasting = [t.number for t in schedule.workload.tensors if t.lasting and not t.made]
    first_used = sorted((n for n in lasting if uses[n]), key=lambda number: uses[number][0])
    if not first_used:
        return
    start = uses[first_used[0]][0]
    first = [number for number in first_used if uses[number][0] == start]
    others = first_used[len(first) :]
    spread = {number: place * SPREAD % 1 for place, number in enumerate(others)}
    yield first + sorted(others, key=lambda number: spread[number])
    yield first_used
    counts = Counter(
        action.tensor
        for action in schedule.actions
        if isinstance(action, Fetch) and not action.start
    )
    if len({counts[number] for number in first_used}) > 1:
        yield sorted(first_used, key=lambda number: (-counts[number], spread.get(number, -inf)))


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
    workload: Workload, sizes: Sequence[int], without: Container[int] = ()
) -> tuple[str, int]:
    """The task whose tensors take most bytes, and these, without some tensors."""
    used = [(task.name, task.tensors) for task in workload.tasks]
    return max(
        (
            (name, sum(sizes[number] for number in tensors if number not in without))
            for name, tensors in [*used, ("the end of the run", workload.left)]
        ),
        key=lambda found: found[1],
    )

"""The arena while windows are handed out: which parts are free, when, and at which price."""

from __future__ import annotations

from bisect import bisect, insort
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


START = -1
"""The task after which everything is free that no task has used yet."""


class Arena:
    """The free parts of the bytes from `begin` to `end`.

    Fetches are carried out in the order in which they are asked for. What is free before the last
    of them can begin is as good as free from then on: `settled` is the task after which that is.
    """

    def __init__(self, begin: int, end: int) -> None:
        self.settled = START
        self.next = 0
        """The task for which windows are handed out."""
        self.free = Intervals(begin, end)
        """What is free at all."""
        self.ready = Intervals(begin, end)
        """What is free when `next` begins: all but what then still goes to the host."""
        self.pending: list[tuple[int, int, int]] = []
        """Last task, start and end of what is not, earliest first."""
        self.early = Intervals(begin, end)
        """What is free when `settled` has ended."""
        self.late: list[tuple[int, int, int]] = []
        """Start, end and last task of what is free later, in the order of the arena."""
        self.queue: list[tuple[int, int, int]] = []
        """Last task, start and end of what is free later, earliest first; some no longer are."""

    def begin(self, task: int) -> None:
        """From now on windows are for this task: those of earlier ones are ready."""
        self.next = task
        while self.pending and self.pending[0][0] < task:
            _, start, end = heappop(self.pending)
            self.ready.remove(start, end)
            for part in self.free.within(start, end):
                self.ready.add(*part)

    def release(self, start: int, size: int, since: int) -> None:
        """A window is free when a task has ended."""
        end = start + size
        self.free.add(start, end)
        if since < self.next:
            self.ready.add(start, end)
        else:
            heappush(self.pending, (since, start, end))
        self._add(start, end, since)

    def _add(self, start: int, end: int, since: int) -> None:
        if since <= self.settled:
            self.early.add(start, end)
        else:
            insort(self.late, (start, end, since))
            heappush(self.queue, (since, start, end))

    def settle(self, since: int) -> None:
        """Nothing counts as free before this task has ended."""
        self.settled = max(self.settled, since)
        while self.queue and self.queue[0][0] <= self.settled:
            last, start, end = heappop(self.queue)
            place = bisect(self.late, (start, end, last)) - 1
            if place >= 0 and self.late[place] == (start, end, last):
                del self.late[place]
                self.early.add(start, end)

    def earliest(self, size: int) -> int | None:
        """The offset of the window that is free earliest: when `settled` has ended.

        Where several are, it is that which fits best.
        """
        if self.free.tightest(size) is None:
            return None
        while (found := self.early.tightest(size)) is None:
            self.settle(self.queue[0][0])
        return found[0]

    def tightest(self, size: int) -> int | None:
        """The offset at the upper end of the smallest part that is large enough and ready.

        If none is ready, one is waited for. What is fetched begins at the lower end, so that small
        results do not lie between large weights.
        """
        found = self.ready.tightest(size) or self.free.tightest(size)
        return None if found is None else found[1] - size

    def take(self, start: int, size: int) -> None:
        """Fill a window that is free."""
        end = start + size
        self.free.remove(start, end)
        self.ready.remove(start, end)
        self.early.remove(start, end)
        first = max(0, bisect(self.late, (start,)) - 1)
        last = bisect(self.late, (end,))
        touched, self.late[first:last] = self.late[first:last], []
        for low, high, since in touched:
            if low < min(high, start):
                self._add(low, min(high, start), since)
            if max(low, end) < high:
                self._add(max(low, end), high, since)

    def holes(self) -> Iterator[tuple[int, int, int]]:
        """Start, end and last task of everything that is free."""
        yield from ((start, end, self.settled) for start, end in self.early.parts)
        yield from self.late


class Intervals:
    """Parts of a range of bytes, in order; no two touch."""

    def __init__(self, begin: int, end: int) -> None:
        self.parts = [(begin, end)] if begin < end else []

    def add(self, start: int, end: int) -> None:
        """Add bytes that are not there yet."""
        place = bisect(self.parts, (start,))
        first = last = place
        if place and self.parts[place - 1][1] == start:
            first, start = place - 1, self.parts[place - 1][0]
        if place < len(self.parts) and self.parts[place][0] == end:
            last, end = place + 1, self.parts[place][1]
        self.parts[first:last] = [(start, end)]

    def remove(self, start: int, end: int) -> None:
        """Take bytes away, as far as they are there."""
        first = max(0, bisect(self.parts, (start,)) - 1)
        last = bisect(self.parts, (end,))
        rest: list[tuple[int, int]] = []
        for low, high in self.parts[first:last]:
            if low < min(high, start):
                rest.append((low, min(high, start)))
            if max(low, end) < high:
                rest.append((max(low, end), high))
        self.parts[first:last] = rest

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts between two offsets."""
        first = max(0, bisect(self.parts, (start,)) - 1)
        last = bisect(self.parts, (end,))
        cut = [(max(low, start), min(high, end)) for low, high in self.parts[first:last]]
        return [(low, high) for low, high in cut if low < high]

    def tightest(self, size: int) -> tuple[int, int] | None:
        """The smallest part of at least so many bytes; of equal ones the first."""
        large = (part for part in self.parts if part[1] - part[0] >= size)
        return min(large, key=lambda part: part[1] - part[0], default=None)


class ArenaPart(NamedTuple):
    """A piece of the arena: a hole, or a tensor's window."""

    start: int
    end: int
    since: int
    """The last task that uses it."""
    price: float
    """What it costs to have it free: nothing for a hole, infinity where a tensor must stay."""
    tensor: int | None = None


def cheapest(parts: Sequence[ArenaPart], size: int) -> Sequence[ArenaPart]:
    """The neighbours of least price that have so many bytes together; none if none have.

    `parts` are all of the arena, in order. Of equal ones those are chosen that are free earliest,
    then those that fit best.
    """
    best, chosen = (inf, 0, 0), slice(0)
    first, price = 0, 0.0
    for last, part in enumerate(parts):
        if part.price == inf:
            first, price = last + 1, 0.0
            continue
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

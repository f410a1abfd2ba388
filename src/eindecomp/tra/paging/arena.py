"""The arena while windows are handed out: which parts are free, and after which task."""

from __future__ import annotations

from bisect import bisect

START = -1
"""The task after which everything is free that no task has used yet."""


class Arena:
    """The free parts of the bytes from `begin` to `end`, in order."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin = begin
        self.end = end
        self.holes: list[tuple[int, int, int]] = []
        """Start, end and the last task that uses any part of it."""
        self.settled = START
        """Nothing counts as free before this task has ended."""
        self.clear(START)

    def clear(self, since: int) -> None:
        """Free everything, as from the end of a task."""
        self.holes = [(self.begin, self.end, since)] if self.begin < self.end else []

    def release(self, start: int, size: int, since: int) -> None:
        """A window is free when a task has ended."""
        place = bisect(self.holes, (start,))
        self.holes.insert(place, (start, start + size, max(since, self.settled)))

    def settle(self, since: int) -> None:
        """Treat what is free earlier as free from this task on, and join what is then alike."""
        self.settled = since
        joined: list[tuple[int, int, int]] = []
        for start, end, last in self.holes:
            last = max(last, since)
            if joined and joined[-1][1:] == (start, last):
                start = joined.pop()[0]
            joined.append((start, end, last))
        self.holes = joined

    def earliest(self, size: int) -> tuple[int, int] | None:
        """The window that is free earliest, and where several are, that which fits best.

        Gives its offset and the task after which it is free.
        """
        best: tuple[int, int, int] | None = None
        for place, (start, end, since) in enumerate(self.holes):
            while end - start < size:
                place += 1
                if place == len(self.holes) or self.holes[place][0] != end:
                    break
                _, end, last = self.holes[place]
                since = max(since, last)
                if best is not None and since > best[0]:
                    break
            if end - start >= size:
                found = since, end - start - size, start
                best = found if best is None else min(best, found)
        return None if best is None else (best[2], best[0])

    def tightest(self, size: int) -> int | None:
        """The offset at the upper end of the smallest free part that is large enough.

        What is fetched begins at the lower end, so that small results do not lie between large
        weights.
        """
        best: tuple[int, int] | None = None
        start = end = self.begin - 1
        for low, high, _ in [*self.holes, (self.end + 1, self.end + 1, START)]:
            if low != end:
                if end - start >= size and (best is None or (end - start, -end) <= best):
                    best = end - start, -end
                start = low
            end = high
        return None if best is None else -best[1] - size

    def take(self, start: int, size: int) -> None:
        """Fill a window that is free."""
        end = start + size
        first = bisect(self.holes, (start + 1,)) - 1
        last = first
        while self.holes[last][1] < end:
            last += 1
        low, _, since = self.holes[first]
        _, high, until = self.holes[last]
        rest = [(low, start, since)] if low < start else []
        rest += [(end, high, until)] if end < high else []
        self.holes[first : last + 1] = rest

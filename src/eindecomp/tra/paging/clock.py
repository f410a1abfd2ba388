"""A clock for guesses while windows are handed out: by the end of which task is a store done?"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Clock:
    """When tasks and transfers end if only tasks wait for fetches, and stores for tasks."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self.computed = list(accumulate(seconds))
        """When tasks would end if they waited for nothing."""
        self.ended: list[float] = []
        """When the tasks so far have ended."""
        self.fetched = 0.0
        self.stored = 0.0

    def fetch(self, seconds: float) -> None:
        """One more transfer to the GPU."""
        self.fetched += seconds

    def run(self, task: int) -> None:
        """The next task runs; the end of the run is one, too, and takes no time."""
        late = self.ended[-1] - self.computed[task - 1] if self.ended else 0.0
        took = self.computed[task] if task < len(self.computed) else 0.0
        self.ended.append(max(took + late, self.fetched))

    def store(self, made: int, seconds: float) -> int:
        """One more transfer to the host, of what a task has made: the task by whose end it ends."""
        self.stored = max(self.stored, self.ended[made]) + seconds
        late = self.ended[-1] - self.computed[len(self.ended) - 1]
        return bisect_left(self.computed, self.stored - late)

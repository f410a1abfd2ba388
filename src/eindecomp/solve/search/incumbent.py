"""The best choice and bound so far, as seen from the core that is being worked on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from eindecomp.solve.problem.arrays import Ints

_SLACK = 1e-9  # relative to cost: what counts as equal when costs are not integers


@dataclass(slots=True)
class Incumbent:
    """The record of a search; costs passed in are a core's, without its `constant`.

    `lift` takes a core's choice to the problem's. Both are set anew when the core is replaced by a
    smaller one that holds every choice better than the best known.
    """

    on_choice: Callable[[Ints], None]
    on_bound: Callable[[float], None]
    integral: bool
    lift: Callable[[Ints], Ints]
    constant: float = 0.0
    cost: float = np.inf
    bound: float = -np.inf
    rival: Callable[[], Ints | None] = field(default=lambda: None)
    """Asks another solver for an optimal choice of the problem, if it has one by now."""
    is_beaten: bool = False
    """Whether the rival had one."""

    def offer(self, choice: Ints, cost: float) -> None:
        """Take a core's choice if it is better."""
        if cost + self.constant < self.cost:
            self.cost = cost + self.constant
            self.on_choice(self.lift(choice))

    def raise_bound(self, bound: float) -> None:
        """Take a bound on the core; it bounds the problem up to the best known cost."""
        proved = min(bound + self.constant, self.cost)
        if proved > self.bound:
            self.bound = proved
            self.on_bound(proved)

    def close(self) -> None:
        """Note that no better choice exists."""
        if np.isfinite(self.cost):
            self.raise_bound(self.cost - self.constant - (0.0 if self.integral else self.margin()))

    def closed(self) -> bool:
        """Whether no better choice can exist, by our own proof or by a rival's."""
        found = None if self.is_beaten else self.rival()
        if found is not None:
            self.is_beaten = True
            self.on_choice(found)
        is_tight = bool(np.isfinite(self.cost)) and self.bound > self.cost - self.margin()
        return self.is_beaten or is_tight

    def margin(self) -> float:
        """How much less a choice must cost to count as better."""
        if self.integral:
            return 1.0 - 1e-6
        return _SLACK * abs(self.cost) if np.isfinite(self.cost) else 0.0

    def cutoff(self, most: float) -> float:
        """The most that a better choice of the core can cost; `most` if none is known."""
        return min(self.cost - self.margin() - self.constant, most)

    def target(self, bound: float) -> float:
        """A cost of the core that the optimum is thought to come near, for the length of steps."""
        if np.isfinite(self.cost):
            return self.cost - self.constant
        return 1.2 * max(bound, 0.0) + 1.0

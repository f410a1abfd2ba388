"""The incumbent: the best choice and bound so far, in terms of the core being searched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from eindecomp.solve.problem.arrays import Ints

_SLACK = 1e-9  # relative to cost: what counts as equal when costs are not integers


@dataclass(slots=True)
class Incumbent:
    """The record of a search; costs passed in are those of a core without its `constant`.

    `lift` turns a core's choice into the problem's. Both are replaced when the core shrinks to a
    smaller one, which keeps every choice that is better than the best known.
    """

    on_choice: Callable[[Ints], None]
    on_bound: Callable[[float], None]
    integral: bool
    lift: Callable[[Ints], Ints]
    constant: float = 0.0
    cost: float = np.inf
    bound: float = -np.inf
    rival: Callable[[], Ints | None] = field(default=lambda: None)
    """Asks another solver for an optimal choice of the problem; None until it has one."""
    is_beaten: bool = False
    """Whether the rival had one."""

    def offer(self, choice: Ints, cost: float) -> None:
        """Take a core's choice if it is better."""
        if cost + self.constant < self.cost:
            self.cost = cost + self.constant
            self.on_choice(self.lift(choice))

    def raise_bound(self, bound: float) -> None:
        """Take a bound on the core, which bounds the problem up to the best known cost."""
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
        optimum = None if self.is_beaten else self.rival()
        if optimum is not None:
            self.is_beaten = True
            self.on_choice(optimum)
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
        """An estimate of the core's optimum, which sets the length of subgradient steps."""
        if np.isfinite(self.cost):
            return self.cost - self.constant
        return 1.2 * max(bound, 0.0) + 1.0

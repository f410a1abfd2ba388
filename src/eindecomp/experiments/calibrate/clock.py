"""How long something takes, told apart from what surrounds it, and how far repeats are apart."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Way = Callable[[], object]
    """Does once what is measured."""

_TURN = 1e-3  # seconds that a turn takes at least, if it need not be of too many calls
_MOST = 100  # calls in one turn


def seconds_each(way: Way, times: int = 1) -> float:
    """The seconds of one of several calls in a row."""
    start = perf_counter()
    for _ in range(times):
        way()
    return (perf_counter() - start) / times


class Clock:
    """Times everything in several turns, and notes how far these are apart.

    `turn` gives the seconds of one of several calls in a row. Where several devices take part, it
    gives all of them the same.
    """

    def __init__(self, repeats: int, turn: Callable[[Way, int], float] = seconds_each) -> None:
        self._repeats, self._turn = repeats, turn
        self.spreads: dict[str, float] = {}
        """For each thing that was timed, the median of its turns over the best."""

    def best(self, what: str, way: Way) -> float:
        """The least seconds of a call over all turns: what other load adds is left out.

        What is brief is called many times in a row, so that a turn's beginning hardly counts.

        >>> clock = Clock(3)
        >>> clock.best("nothing", lambda: None) < 1
        True
        >>> clock.spreads["nothing"] >= 1
        True
        """
        self._turn(way, 1)  # compiles and connects
        times = min(max(round(_TURN / max(self._turn(way, 1), 1e-9)), 1), _MOST)
        turns = [self._turn(way, times) for _ in range(self._repeats)]
        self.spreads[what] = median(turns) / min(turns)
        return min(turns)


def slope(few: tuple[int, float], many: tuple[int, float]) -> float:
    """What one more of something takes, from the seconds of few and of many; never nothing.

    >>> slope((2, 5.0), (4, 9.0)), slope((2, 5.0), (4, 5.0))
    (2.0, 1.25)
    """
    (n, short), (m, long) = few, many
    more = (long - short) / (m - n)
    return more if more > 0 else long / m

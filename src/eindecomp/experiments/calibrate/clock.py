"""How long something takes, told apart from what surrounds it."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Way = Callable[[], object]
    """Does once what is measured."""


def seconds_each(way: Way, times: int = 1) -> float:
    """The seconds of one of several calls in a row."""
    start = perf_counter()
    for _ in range(times):
        way()
    return (perf_counter() - start) / times


def best_seconds(way: Way, repeats: int) -> float:
    """The least over some repeats, after one that does not count: what other load adds is left out.

    >>> best_seconds(lambda: None, 3) < 1
    True
    """
    way()
    return min(seconds_each(way) for _ in range(repeats))


def slope(few: tuple[int, float], many: tuple[int, float]) -> float:
    """What one more of something takes, from the seconds of few and of many; never nothing.

    >>> slope((2, 5.0), (4, 9.0)), slope((2, 5.0), (4, 5.0))
    (2.0, 1.25)
    """
    (n, short), (m, long) = few, many
    more = (long - short) / (m - n)
    return more if more > 0 else long / m

"""What is asked of links, whoever has them: collectives along an axis, by size."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from eindecomp.planner.costs.machine import ANY_AXIS
from eindecomp.planner.costs.rates import Curve, highest, middle, ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from eindecomp.experiments.calibrate.clock import Clock, Way
    from eindecomp.planner.costs.machine import Collective

    Curves = dict[str, dict[str, Curve]]

_NOISE = 1.3  # how many times as slow one axis may be as another that is like it


class Message(NamedTuple):
    """A collective of one size."""

    way: Way
    """Does it once."""
    received: int
    """The bytes that each device receives, about as many as were asked for."""


class Links(Protocol):
    """Links between devices along axes."""

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes, outermost first."""
        ...

    @property
    def collectives(self) -> Mapping[Collective, Callable[[str, int], Message]]:
        """For each collective that takes time, what makes it for an axis and a size in bytes."""
        ...


def measured(
    links: Links, sizes: Sequence[int], clock: Clock, say: Callable[[str], None]
) -> Curves:
    """Seconds by size for every collective and axis."""
    found: Curves = {}
    for collective, make in links.collectives.items():
        found[collective] = {}
        for axis in links.axes:
            what = f"{collective.replace('_', ' ')} along {axis}"
            say(what)
            found[collective][axis] = curve_of(what, partial(make, axis), sizes, clock)
    return found


def alike_together(curves: Curves, axes: Sequence[str]) -> Curves:
    """One curve for neighbouring axes that are alike, and one for axes of any other name.

    Axes that are equal but for noise are interchangeable, so that plans are found sooner and proved
    better. Where all are alike, no axis is named.
    """
    runs: list[list[str]] = []
    for axis in axes:
        joined = [*runs[-1], axis] if runs else []
        if joined and all(ratio(own[a] for a in joined) <= _NOISE for own in curves.values()):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    found: Curves = {}
    for collective, own in curves.items():
        shared = [middle(own[axis] for axis in run) for run in runs]
        named = {axis: curve for run, curve in zip(runs, shared, strict=True) for axis in run}
        found[collective] = {ANY_AXIS: highest(shared), **(named if len(runs) > 1 else {})}
    return found


def curve_of(
    what: str, make: Callable[[int], Message], sizes: Iterable[int], clock: Clock
) -> Curve:
    """Seconds by size."""
    points: dict[int, float] = {}
    for size in sizes:
        message = make(size)
        seconds = clock.best(f"{what}, {message.received} bytes", message.way)
        points[message.received] = min(seconds, points.get(message.received, seconds))
    return ascending(points)


def ascending(points: Mapping[int, float]) -> Curve:
    """A curve through points of ascending sizes, where a smaller message never takes longer.

    Noise only adds to what was measured, so the shorter of two times in the wrong order is right.

    >>> ascending({1: 5.0, 2: 3.0, 4: 4.0}).points
    ((1.0, 3.0), (2.0, 3.0), (4.0, 4.0))
    """
    least = inf
    found: list[tuple[float, float]] = []
    for size, seconds in [*points.items()][::-1]:
        least = min(least, seconds)
        found.append((size, least))
    return Curve(tuple(reversed(found)))

"""What is asked of links, whoever has them: collectives along an axis, and seconds of all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from eindecomp.experiments.calibrate.clock import seconds_each
from eindecomp.planner.costs.curve import Curve, highest, middle, ratio
from eindecomp.planner.costs.machine import ANY_AXIS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.planner.costs.transfer import Collective

    Curves = dict[str, dict[str, Curve]]

Way = Callable[[], object]
_SHORT = 1 << 16  # bytes below which several messages in a row are timed
_LEAST = 1e-9
_NOISE = 1.3  # how many times as slow one axis may be as another that is like it


class Links(Protocol):
    """Links between devices along axes; sizes are the bytes that each device receives."""

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes, outermost first."""
        ...

    @property
    def collectives(self) -> Mapping[Collective, Callable[[str, int], Way]]:
        """For each collective that takes time, what does it once for an axis and a size."""
        ...

    def slowest(self, seconds: float) -> float:
        """The most that any device says; all of them go on together."""
        ...


def measured(
    links: Links, sizes: Sequence[int], repeats: int, say: Callable[[str], None]
) -> Curves:
    """Seconds by size for every collective and axis."""
    found: Curves = {}
    for collective, make in links.collectives.items():
        found[collective] = {}
        for axis in links.axes:
            say(f"{collective.replace('_', ' ')} along {axis}")
            found[collective][axis] = curve_of(links, partial(make, axis), sizes, repeats)
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


def curve_of(links: Links, make: Callable[[int], Way], sizes: Sequence[int], repeats: int) -> Curve:
    """Seconds by size; a larger message never takes less than a smaller one."""
    points: list[tuple[float, float]] = []
    for size in sizes:
        way, times = make(size), 10 if size < _SHORT else 1
        way()
        # Each turn ends for all devices before the next one begins. The best of them is taken, as
        # it is for kernels: what other load adds is no property of the links.
        turns = [links.slowest(seconds_each(way, times)) for _ in range(repeats)]
        least = points[-1][1] if points else _LEAST
        points.append((size, max(min(turns), least)))
    return Curve(tuple(points))

"""What links between devices take: collectives along an axis, by size.

Between threads moving is free, since all read the same memory; only reducing takes time. Of an
engine of which nothing is known but that it runs plans, it is what a run takes longer that also
moves a tensor: one repartition, from rows to columns, stands for every way to fetch and to reduce.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import inf, isqrt
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from eindecomp.api.compile import compile as compile_plan
from eindecomp.graph.text.elaborate import parse
from eindecomp.planner.costs.machine import ANY_AXIS, COLLECTIVES, Curve, highest, middle, ratio
from eindecomp.planner.make import plan as make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from eindecomp.experiments.calibrate.clock import Clock, Way
    from eindecomp.planner.costs.machine import Collective

    Curves = dict[str, dict[str, Curve]]
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from eindecomp.engines.engine import Engine
    from eindecomp.planner.costs.machine import Curve

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


class SharedMemory:
    """Threads that each add what others have left in memory to what they have."""

    axes = ("threads",)

    def __init__(self, devices: int) -> None:
        self._devices = devices
        self._pool = ThreadPoolExecutor(devices)

    @property
    def collectives(self) -> Mapping[Collective, Callable[[str, int], Message]]:
        """Only what is not free."""
        return {"reduce_scatter": self._reduce_scatter}

    def _reduce_scatter(self, axis: str, size: int) -> Message:
        del axis
        elements = max(size // 4, 1)
        every = [np.ones((2, elements), np.float32) for _ in range(self._devices)]
        return Message(lambda: list(self._pool.map(_add, every)), 4 * elements)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown()


def _add(pair: NDArray[np.float32]) -> None:
    np.add(pair[0], pair[1], out=pair[0])


_LEAST = 1e-7


def moves(
    engine: Engine,
    devices: int,
    sizes: Sequence[int],
    clock: Clock,
    say: Callable[[str], None],
) -> dict[str, dict[str, Curve]]:
    """The seconds of a repartition, by the bytes that each device receives, for all collectives."""
    points: dict[int, float] = {}
    for size in sizes:
        say(f"repartition of {size} bytes on each device")
        # Of n × n elements in rows, a device lacks (p - 1) of the p squares of its columns.
        side = devices * max(isqrt(size // 4 * devices * devices // (devices - 1)) // devices, 1)
        moving, staying = (_seconds(engine, devices, side, cut, clock) for cut in "ji")
        received = 4 * side * side // devices * (devices - 1) // devices
        points[received] = max(moving - staying, _LEAST)
    curve = ascending(points)
    return {collective: {ANY_AXIS: curve} for collective in COLLECTIVES}


def _seconds(engine: Engine, devices: int, side: int, cut: str, clock: Clock) -> float:
    """A run that makes a tensor in rows, and another of it in rows or in columns."""
    graph = parse(
        f"input X[i: {side}, j: {side}]\nY[i,j] <- X[i,j] + 1\nZ[i,j] <- Y[i,j] * 2\noutput Z",
        "calibrate",
    )
    pins = {"X": {"i": devices}, "Y": {"i": devices}, "Z": {cut: devices}}
    plan = make_plan(graph, devices, pin=pins, rewrite=False)
    with compile_plan(plan, engine) as executable:
        placed = executable.place({"X": np.ones((side, side), np.float32)})
        return clock.best(f"{side} x {side} to {cut}", lambda: executable(placed))

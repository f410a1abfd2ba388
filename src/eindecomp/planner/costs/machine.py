"""Machines to plan for: what a device computes per second, and what its links carry.

A machine is described by a few numbers, or measured: `eindecomp calibrate` writes a file that has
rates by the shape of what is computed, and seconds by the size of messages for each collective.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from numbers import Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from eindecomp.above import from_above
from eindecomp.errors import PlanError, quote, suggest
from eindecomp.graph.ops import Op
from eindecomp.graph.work import is_product, tile_functions
from eindecomp.layout.mesh import Mesh, check_axis_name
from eindecomp.solve.problem.arrays import Floats

INTENSITIES = {"vector": 2.0, "thin": 16.0, "large": 256.0, "huge": 683.0}
"""The intensity of each kind of product for which a machine gives a rate.

That is the operations for each element that is read or written: 2·n/3 for matrices of n × n, about
2·w for one of few rows w, about 2 for a vector. Between these, rates are interpolated.
"""
LOOPS = "loops"
"""Everything that is not a product."""
FUNCTIONS = "functions"
"""Elementary functions such as `exp`, each of which is many operations."""
SHAPES = (*INTENSITIES, LOOPS, FUNCTIONS)
STAND_INS = {"huge": "large", FUNCTIONS: LOOPS}
"""Shapes that older profiles lack, and those whose rates they then have."""
_ITEM = 4


def rate(flops: float | Mapping[str, float], op: Op | None, intensity: Any, item: int) -> Any:
    """Operations per second of a tile, for items of so many bytes."""
    if isinstance(flops, float | int):
        return flops
    slower = max(item, _ITEM) / _ITEM
    if not is_product(op):
        return flops[LOOPS] / slower
    known = np.array(list(INTENSITIES.values()))
    rates = np.array([flops[name] for name in INTENSITIES])
    asked = np.array(np.maximum(intensity, 1.0), dtype=np.float64)
    return np.exp(np.interp(np.log(asked), np.log(known), np.log(rates))) / slower


def function_seconds(
    flops: float | Mapping[str, float], op: Op, tile: Mapping[str, Any], item: int
) -> Any:
    """What elementary functions take on a tile beside all other operations."""
    if isinstance(flops, float | int):
        return 0.0
    return tile_functions(op, tile) / flops[FUNCTIONS] * (max(item, _ITEM) / _ITEM)


def best_rate(flops: float | Mapping[str, float], op: Op, item: int) -> float:
    """The most operations per second of any tile."""
    if isinstance(flops, float | int):
        return flops
    fastest = max(INTENSITIES, key=lambda name: flops[name])
    return float(rate(flops, op, INTENSITIES[fastest], item))


MOST_POINTS = 256


class Line(NamedTuple):
    """Seconds that grow evenly with size: a start, and seconds for each byte."""

    start: float
    pace: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds by bytes: constant before the first point, straight between, proportional beyond.

    >>> curve = Curve(((1000, 2e-6), (3000, 4e-6)))
    >>> curve.seconds([10, 2000, 6000]).tolist()
    [2e-06, 3e-06, 8e-06]
    """

    points: tuple[tuple[float, float], ...]
    """Bytes and seconds, both ascending."""

    def __post_init__(self) -> None:
        points = _checked(self.points)
        object.__setattr__(self, "points", points)

    def seconds(self, sizes: Any) -> Any:
        """The seconds that messages of these sizes take."""
        points = np.array(self.points, dtype=np.float64)
        asked = np.array(sizes, dtype=np.float64)
        between = np.interp(asked, points[:, 0], points[:, 1])
        return between * np.maximum(asked / self.points[-1][0], 1.0)

    @property
    def floor(self) -> Line:
        """A line that is nowhere above the curve and, if it can be, meets it at the last point.

        Of such lines it starts highest: what a message takes at least matters for small ones, and
        beyond the last point hardly anything is lost.
        """
        *before, (largest, longest) = self.points
        slopes = [(longest - seconds) / (largest - size) for size, seconds in before]
        pace = min(max(slopes, default=0.0), *(seconds / size for size, seconds in self.points))
        start = min(seconds - pace * size for size, seconds in self.points)
        return Line(max(start, 0.0), pace)


def highest(curves: Iterable[Curve]) -> Curve:
    """The slowest of several curves at each of their sizes."""
    sizes, seconds = _sampled(curves)
    return Curve(tuple(zip(sizes, seconds.max(axis=0).tolist(), strict=True)))


def middle(curves: Iterable[Curve]) -> Curve:
    """The geometric mean of several curves at each of their sizes."""
    sizes, seconds = _sampled(curves)
    means = np.maximum.accumulate(np.exp(np.log(seconds).mean(axis=0)))
    return Curve(tuple(zip(sizes, means.tolist(), strict=True)))


def ratio(curves: Iterable[Curve]) -> float:
    """How many times as slow as the fastest the slowest of several curves is, at most."""
    _, seconds = _sampled(curves)
    return float((seconds.max(axis=0) / seconds.min(axis=0)).max())


def _sampled(curves: Iterable[Curve]) -> tuple[list[float], Floats]:
    """The sizes of all points, and for each curve its seconds there."""
    every = list(curves)
    sizes = sorted({size for curve in every for size, _ in curve.points})
    return sizes, np.array([curve.seconds(sizes) for curve in every], dtype=np.float64)


def _checked(points: Sequence[Any]) -> tuple[tuple[float, float], ...]:
    if isinstance(points, str | bytes) or not 0 < len(points) <= MOST_POINTS:
        raise PlanError(f"a curve has 1 to {MOST_POINTS} points, not {quote(points)}")
    pairs: list[tuple[float, float]] = []
    for point in points:
        try:
            size, seconds = (float(number) for number in point)
        except (TypeError, ValueError):
            size, seconds = 0.0, 0.0
        if not (0 < size < inf and 0 < seconds < inf):
            message = f"a curve's points are bytes and seconds, both positive: {quote(point)}"
            raise PlanError(message)
        if pairs and not (size > pairs[-1][0] and seconds >= pairs[-1][1]):
            raise PlanError(f"a curve's sizes and seconds ascend, but {quote(point)} does not")
        pairs.append((size, seconds))
    return tuple(pairs)


Collective = Literal["all_gather", "all_to_all", "reduce_scatter", "point_to_point"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
FETCHES: tuple[Collective, ...] = ("all_gather", "all_to_all", "point_to_point")
"""The collectives that a fetch can be."""
DOUBLING, RING = ROUNDS = ("doubling", "ring")
ANY_AXIS = "*"
"""Stands for every axis that has no curve of its own."""


@dataclass(frozen=True, repr=False)
class Machine:
    """A machine; its links are described for all axes alike, or axis by axis, by name.

    Args:
        flops: Operations per second and device, such as `1e12`, or these by the shape of what is
            computed (`SHAPES`), for items of at most 4 bytes; larger ones take as many
            times as long as they have 4 bytes. Where they are not given, `huge` products are as
            fast as `large` ones, and `functions`, calls such as `exp`, as `loops`.
        memory_bandwidth: Bytes per second between a device and its memory, such as `1e11`.
        bandwidth: Bytes per second that a device receives along an axis, such as `{"node": 1e9,
            "gpu": 1e11}`.
        latency: Seconds before the first byte arrives along an axis, such as `5e-6`.
        mesh: The machine's own axes, outermost first, such as `{"node": 2, "gpu": 8}`.
        task_overhead: Seconds that each kernel call, and each message without a curve, takes beside
            its work, such as `1e-5`.
        overlap: The fraction of computing beside which communication can run, `0.0` to `1.0`.
        transfers: For a collective and an axis, seconds by the bytes that each device receives, in
            place of bandwidth, latency and overhead: `{"all_gather": {"*": curve}}`, where the axis
            `"*"` is for all that are not named.
        rounds: How many messages of a collective among n devices follow one another, each with a
            latency: log2 n (`"doubling"`) or n - 1 (`"ring"`).

    Raises:
        PlanError: A number is out of its range, or there is no such collective.

    Examples:
        >>> Machine(flops=1e12, memory_bandwidth=1e11, bandwidth={"node": 1e9, "gpu": 1e11})
        <Machine: 1 Tflop/s, memory 100 GB/s, links node 1 GB/s, gpu 100 GB/s>
    """

    flops: float | Mapping[str, float]
    memory_bandwidth: float
    bandwidth: float | Mapping[str, float]
    latency: float | Mapping[str, float] = 0.0
    mesh: Mapping[str, int] = field(default_factory=dict[str, int])
    task_overhead: float = 0.0
    overlap: float = 0.0
    transfers: Mapping[str, Mapping[str, Curve]] = field(default_factory=dict[str, Any])
    rounds: str = DOUBLING

    def __post_init__(self) -> None:
        flops = _all_shapes(self.flops)
        object.__setattr__(self, "flops", flops)
        rates = flops.values() if isinstance(flops, Mapping) else [flops]
        named = [*(("flops", x) for x in rates), ("memory_bandwidth", self.memory_bandwidth)]
        named += [(f"bandwidth of {n}", x) for n, x in _by_name(self.bandwidth).items()]
        for name, value in named:
            if not _is_number(value) or not value > 0:
                raise PlanError(f"a machine's {name} must be positive, not {value!r}")
        lengths = {f"latency of {n}": x for n, x in _by_name(self.latency).items()}
        for name, value in {**lengths, "task_overhead": self.task_overhead}.items():
            if not _is_number(value) or not (value >= 0 and isfinite(value)):
                raise PlanError(f"a machine's {name} must be 0 or more, not {value!r}")
        if not _is_number(self.overlap) or not 0 <= self.overlap <= 1:
            raise PlanError(f"a machine's overlap must be from 0 to 1, not {self.overlap!r}")
        if self.rounds not in ROUNDS:
            known = " or ".join(ROUNDS)
            raise PlanError(f"a machine's rounds must be {known}, not {quote(self.rounds)}")
        # Plain numbers, whatever types were given: they are written to files and compared.
        plain: dict[str, Any] = {name: _plain(getattr(self, name)) for name in RATES}
        plain["mesh"] = Mesh.of_axes(self.mesh).axes
        plain["transfers"] = _curves(self.transfers)
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        fastest = max(self.flops.values()) if isinstance(self.flops, Mapping) else self.flops
        if isinstance(self.bandwidth, Mapping):
            links = ", ".join(f"{n} {_short(x, 'B/s')}" for n, x in self.bandwidth.items())
        else:
            links = _short(self.bandwidth, "B/s")
        memory = _short(self.memory_bandwidth, "B/s")
        measured = ", measured transfers" if self.transfers else ""
        return f"<Machine: {_short(fastest, 'flop/s')}, memory {memory}, links {links}{measured}>"

    def bandwidth_of(self, axis: str) -> float:
        """Bytes per second along an axis.

        Args:
            axis: A mesh axis, such as `"gpu"`.
        """
        return self._of(self.bandwidth, axis, "bandwidth")

    def latency_of(self, axis: str) -> float:
        """Seconds of latency along an axis.

        Args:
            axis: A mesh axis, such as `"gpu"`.
        """
        return self._of(self.latency, axis, "latency")

    def _of(self, given: float | Mapping[str, float], axis: str, what: str) -> float:
        if not isinstance(given, Mapping):
            return given
        if axis not in given:
            hint = f": plan with mesh={dict(self.mesh)}" if self.mesh else ""
            known = f"only for {list(given)}{hint}"
            raise PlanError(f"the machine has no {what} for mesh axis {axis!r}, {known}")
        return given[axis]

    def curve_of(self, collective: Collective, axis: str) -> Curve | None:
        """The measured seconds of a collective along an axis, if there are any.

        Args:
            collective: What communicates, such as `"all_gather"`.
            axis: A mesh axis, such as `"gpu"`.
        """
        curves = self.transfers.get(collective, {})
        return curves.get(axis, curves.get(ANY_AXIS))

    def save(self, path: str | Path) -> None:
        """Write the machine to a JSON file.

        Args:
            path: The file, such as `"machine.json"`.
        """
        from_above("store.machine_file").save(self, path)

    @staticmethod
    def load(path: str | Path) -> Machine:
        """Read a machine from a JSON file, checking all of it.

        Args:
            path: The file, such as `"machine.json"`.
        """
        return from_above("store.machine_file").load(path)


RATES = ("flops", "memory_bandwidth", "bandwidth", "latency", "task_overhead", "overlap")


def _short(rate: float, unit: str) -> str:
    for scale, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if rate >= scale:
            return f"{rate / scale:.3g} {prefix}{unit}"
    return f"{rate:.3g} {unit}"


def _all_shapes(given: float | Mapping[str, float]) -> float | Mapping[str, float]:
    """Rates by shape, checked; those that may be missing are as fast as others."""
    if not isinstance(given, Mapping):
        return given
    rates = {name: given[near] for name, near in STAND_INS.items() if near in given} | dict(given)
    if set(rates) != set(SHAPES):
        raise PlanError(f"flops by shape are for {', '.join(SHAPES)}, not for {quote(list(given))}")
    for name, value in rates.items():
        if not _is_number(value) or not isfinite(value):
            raise PlanError(f"a machine's flops of {name} must be finite, not {quote(value)}")
    return {name: rates[name] for name in SHAPES}


def _by_name(given: float | Mapping[str, float]) -> dict[str, float]:
    if not isinstance(given, Mapping):
        return {"all axes": given}
    for name in given:
        check_axis_name(name)
    return dict(given)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)  # pyright: ignore[reportUnnecessaryIsInstance]


def _plain(given: float | Mapping[str, float]) -> float | dict[str, float]:
    if isinstance(given, Mapping):
        return {name: float(value) for name, value in given.items()}
    return float(given)


def _curves(given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Curve]]:
    """Curves by collective and axis, each a `Curve` or its points."""
    transfers: dict[str, dict[str, Curve]] = {}
    for collective, curves in given.items():
        if collective not in COLLECTIVES:
            raise PlanError(
                f"transfers: no collective is called {quote(collective)}"
                f"{suggest(str(collective)[:60], COLLECTIVES)}"
            )
        if not isinstance(curves, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(f"transfers of {collective} are {{axis: curve}}, not {quote(curves)}")
        for axis in curves:
            check_axis_name(axis)
        transfers[collective] = {
            axis: curve if isinstance(curve, Curve) else Curve(curve)
            for axis, curve in curves.items()
        }
    return transfers

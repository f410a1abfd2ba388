"""How fast a machine is: operations by the shape of what is computed, messages by their size.

Products of large matrices are faster than thin ones, and these faster than a matrix times a vector.
What tells them apart is their *intensity*, the operations for each element that is read or written:
2·n/3 for matrices of n × n, about 2·w for one of few rows w, about 2 for a vector. Between the
measured shapes, rates are interpolated. All that is no product is a loop, in which elementary
functions such as `exp` take time of their own: each is many operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eindecomp.errors import PlanError, quote
from eindecomp.graph.work import tile_functions
from eindecomp.lang.einsum import EinSum

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from eindecomp.graph.ops import Op

INTENSITIES = {"vector": 2.0, "thin": 16.0, "large": 256.0, "huge": 683.0}
"""The intensity of each kind of product for which a machine gives a rate."""
LOOPS = "loops"
FUNCTIONS = "functions"
SHAPES = (*INTENSITIES, LOOPS, FUNCTIONS)
STAND_INS = {"huge": "large", FUNCTIONS: LOOPS}
"""Shapes that older profiles lack, and those whose rates they then have."""
_ITEM = 4


def is_product(op: Op | None) -> bool:
    """Whether a vertex, if it is one, multiplies tensors and sums."""
    return isinstance(op, EinSum) and op.is_contraction and len(op.inputs) > 1


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
        found = np.interp(asked, points[:, 0], points[:, 1])
        return found * np.maximum(asked / self.points[-1][0], 1.0)

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


def steady(latency: float, bandwidth: float) -> Line:
    """The line of a link that is described by its latency and bandwidth."""
    return Line(latency, 1 / bandwidth)


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


def _sampled(curves: Iterable[Curve]) -> tuple[list[float], NDArray[np.float64]]:
    """The sizes of all points, and for each curve its seconds there."""
    every = list(curves)
    sizes = sorted({size for curve in every for size, _ in curve.points})
    return sizes, np.array([curve.seconds(sizes) for curve in every], dtype=np.float64)


def _checked(points: Sequence[Any]) -> tuple[tuple[float, float], ...]:
    if isinstance(points, str | bytes) or not 0 < len(points) <= MOST_POINTS:
        raise PlanError(f"a curve has 1 to {MOST_POINTS} points, not {quote(points)}")
    found: list[tuple[float, float]] = []
    for point in points:
        size, seconds = _pair(point)
        if found and not (size > found[-1][0] and seconds >= found[-1][1]):
            raise PlanError(f"a curve's sizes and seconds ascend, but {quote(point)} does not")
        found.append((size, seconds))
    return tuple(found)


def _pair(point: Any) -> tuple[float, float]:
    try:
        size, seconds = (float(number) for number in point)
    except (TypeError, ValueError):
        size, seconds = 0.0, 0.0
    if not (0 < size < inf and 0 < seconds < inf):
        raise PlanError(f"a curve's points are bytes and seconds, both positive: {quote(point)}")
    return size, seconds

"""The fewest bytes that any schedule of one contraction moves, whatever it computes where.

A contraction has a *point* for every value of its labels: one product of an element of each input,
added to an element of the result. A set V of points on a device touches the elements φⱼ(V) of
tensor j. Devices must receive what they touch of inputs and do not store, and all but one of those
that add to an element of the result must send their sum. So where every tensor is stored once and
every point is computed once, all devices together move at least the elements that they touch, less
one copy of each tensor.

How few elements can a set of points touch? By the inequality of Hölder, Brascamp and Lieb, for all
exponents sⱼ, rₗ ≥ 0 in which every label l, of size nₗ, has Σ sⱼ + rₗ ≥ 1 over the tensors j that
carry it, |V| ≤ Π |φⱼ(V)|^sⱼ · Π nₗ^rₗ. By duality, V touches no less than the best *box* of |V|
points does, whose sides bₗ are real numbers from 1 to nₗ: the least Σ wⱼ Π bₗ over tensors of wⱼ
bytes an element. For a product of matrices, that is the bound of Al Daas, Ballard, Grigori, Kumar
and Rouse ("Tight memory-independent parallel matrix multiplication communication lower bounds",
SPAA 2022): of its three cases, the first has two sides that are whole, the second one, the last
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from math import ceil, exp, gcd, log, prod
from typing import Any

import numpy as np

from eindecomp.solve.problem.arrays import Floats

_SHARPEST = 12  # digits to which the sides of a box are found
_STEPS = 60  # of Newton's method, for every third of these digits
_ROUNDING = 1e-12  # of what is touched: less than that is not told from nothing


@dataclass(frozen=True, slots=True)
class Contraction:
    """The points of a contraction, and the tensors of which each needs an element."""

    sizes: tuple[int, ...]
    """The size of each label."""
    tensors: tuple[frozenset[int], ...]
    """The labels of each tensor, by number; the result is the last."""
    items: tuple[int, ...]
    """The bytes of an element of each tensor; of the result, those of a partial sum."""
    first: tuple[int, ...]
    """The first place of each tensor: one that is read under several labels has several places."""

    @property
    def points(self) -> int:
        """The number of points."""
        return prod(self.sizes)

    @property
    def weights(self) -> tuple[float, ...]:
        """The bytes to count for a touched element.

        Of a tensor under several labels, at least the mean of what these touch is needed.
        """
        return tuple(
            item / self.first.count(own) for item, own in zip(self.items, self.first, strict=True)
        )

    def elements(self, tensor: int) -> int:
        """The elements of a tensor, of a diagonal only those on it."""
        return prod(self.sizes[label] for label in self.tensors[tensor])

    @property
    def stored(self) -> int:
        """The bytes of one copy of every tensor."""
        return sum(self.items[own] * self.elements(own) for own in {*self.first})


def least_moved(
    contraction: Contraction, points: Mapping[int, int], memory: int | None = None
) -> int:
    """The bytes that devices receive at least, all together, in any schedule.

    `points` has, by how many points a device computes, how many such devices there are; each has at
    most `memory` bytes. Tensors are stored once before and after, and points are computed once. Of
    more than two inputs, each product is formed on one device.

    >>> least_moved(matrix_product(16, 16, 16), {16**3 // 8: 8})  # each receives half of 3 tiles
    3072
    """
    points = {size: count for size, count in points.items() if size}  # others touch nothing
    touched = sum(count * least_touched(contraction, size) for size, count in points.items())
    least = touched * (1 - _ROUNDING) - contraction.stored
    if memory is not None:
        passed = sum(count * _passed(contraction, size, memory) for size, count in points.items())
        kept = contraction.items[-1] * contraction.elements(-1)
        least = max(least, passed * (1 - _ROUNDING) - kept)
    unit = gcd(*contraction.items)
    return max(ceil(least / unit) * unit, 0)


def matrix_product(m: int, n: int, k: int, item: int = 4) -> Contraction:
    """The product of an m × k and a k × n matrix."""
    tensors = (frozenset({0, 2}), frozenset({1, 2}), frozenset({0, 1}))
    return Contraction((m, n, k), tensors, (item,) * 3, (0, 1, 2))


def even_points(points: int, devices: int) -> dict[int, int]:
    """The points of each device if they are divided as evenly as can be.

    >>> even_points(8, 3)
    {2: 1, 3: 2}
    """
    each, more = divmod(points, devices)
    counts = {each: devices - more, each + 1: more}
    return {size: count for size, count in counts.items() if size and count}


@lru_cache(maxsize=1 << 12)
def least_touched(contraction: Contraction, points: int) -> float:
    """The bytes of elements that any set of so many points touches at least.

    >>> round(least_touched(matrix_product(8, 8, 8), 64), 6)  # a cube of side 4: 3 · 4 × 4 elements
    192.0
    """
    if not points:
        return 0.0
    has, caps = _merged_labels(contraction)
    weights = np.log(np.array(contraction.weights))
    sides = _best_box(has, weights, caps, min(log(points), float(caps.sum())))
    return _proved(has, weights, caps, log(points), sides)


def _merged_labels(contraction: Contraction) -> tuple[Floats, Floats]:
    """Which tensors (rows) have which labels (columns), and the logarithms of their sizes.

    Labels that the same tensors carry count as one: only the product of their sides matters.
    """
    sizes: dict[tuple[bool, ...], float] = {}
    for label, size in enumerate(contraction.sizes):
        if size > 1:
            carried = tuple(label in own for own in contraction.tensors)
            sizes[carried] = sizes.get(carried, 0.0) + log(size)
    has = np.array(list(sizes), dtype=np.float64).reshape(-1, len(contraction.tensors)).T
    return has, np.array(list(sizes.values()))


def _best_box(has: Floats, weights: Floats, caps: Floats, volume: float) -> Floats:
    """The sides, as logarithms, of a box that touches the least: a convex problem.

    Newton's method, with ever weaker barriers at sides that are 1 or whole.
    """
    whole = float(caps.sum())
    if volume <= 0 or volume >= whole * (1 - _ROUNDING):
        return np.zeros_like(caps) if volume <= 0 else caps
    sides = caps * (volume / whole)
    system = np.ones((len(caps) + 1, len(caps) + 1))
    system[-1, -1] = 0.0
    for digit in range(0, _SHARPEST + 1, 3):
        for _ in range(_STEPS):
            shares, room = _shares(has, weights, sides), caps - sides
            slope = has.T @ shares
            bend = has.T @ (shares[:, None] * has) - np.outer(slope, slope)
            uphill = 10.0**digit * slope - 1 / sides + 1 / room
            system[:-1, :-1] = 10.0**digit * bend + np.diag(sides**-2 + room**-2)
            uphill -= uphill.mean()  # the sum of all sides is fixed
            step = np.linalg.solve(system, np.append(-uphill, 0.0))[:-1]
            step -= step.mean()
            falls = float(uphill @ step)
            if falls > -1e-9:
                break
            limits = np.where(step < 0, sides, room) / np.maximum(np.abs(step), 1e-300)
            length = min(1.0, 0.95 * float(limits.min()))
            while length > 1e-9:  # not so far that it rises as steeply as it fell
                at = sides + length * step
                ahead = 10.0**digit * (has.T @ _shares(has, weights, at)) - 1 / at
                if float((ahead + 1 / (caps - at)) @ step) < -0.5 * falls:
                    break
                length /= 2
            sides = sides + length * step
    return sides


def _shares(has: Floats, weights: Floats, sides: Floats) -> Floats:
    """Which part of what a box touches is of each tensor."""
    touched = weights + has @ sides
    bytes_ = np.exp(touched - touched.max())
    return bytes_ / bytes_.sum()


def _proved(has: Floats, weights: Floats, caps: Floats, volume: float, sides: Floats) -> float:
    """A lower bound on what a volume touches, as good as the sides of the box that suggest it.

    It holds for any shares δ and any μ ≥ 0: with exponents sⱼ = δⱼ / μ and rₗ = max(0, 1 - Σ sⱼ),
    Σ wⱼ|φⱼ| ≥ Π (wⱼ|φⱼ| / δⱼ)^δⱼ ≥ Π (wⱼ / δⱼ)^δⱼ · (|V| / Π nₗ^rₗ)^μ.
    """
    shares = np.maximum(_shares(has, weights, sides), 1e-300)
    slopes = has.T @ shares
    fixed = float(shares @ (weights - np.log(shares)))
    missing = np.maximum(slopes[:, None] - slopes[None], 0.0)
    return exp(fixed + float((slopes * volume - missing @ caps).max(initial=0.0)))


def _passed(contraction: Contraction, points: int, memory: int) -> float:
    """The bytes that pass through a device's memory at least, beyond what it holds at first.

    Between two moments with T bytes in between, points touch at most what memory holds and those:
    M + T. That bounds the points by exponents of the least sum σ, a linear program over the labels;
    the best T is M / (σ - 1). For matrices, σ = 3/2, and this is 2·points/√M - 2M words. Sums begin
    in memory, so each that ends there, as an element of the result, has not passed.
    """
    has, _ = _merged_labels(contraction)
    if not has.size or memory <= 0:
        return 0.0
    # It takes a while to import, which most programs do without.
    linprog: Any = import_module("scipy.optimize").linprog
    solved = linprog(np.ones(len(has)), -has.T, -np.ones(has.shape[1]), bounds=(0, 1))
    exponents = np.asarray(solved.x, dtype=np.float64)
    exponents /= min(1.0, float((exponents @ has).min(initial=1.0)))  # not below 1 by rounding
    total = float(exponents.sum())
    if total <= 1 + _ROUNDING:
        return 0.0
    passing = memory / (total - 1)
    shares = exponents / total / np.array(contraction.weights)
    used = exponents > 0
    most = exp(total * log(memory + passing) + float(exponents[used] @ np.log(shares[used])))
    return max(passing * (points / most - 1), 0.0)

"""Which way to compute a product is the fastest on this machine: measured once, and remembered.

Libraries and loops of our own win and lose by the processor, the shape and the order in memory, so
nothing is decided here by rules. Products fall into classes of about the same shape, type and
order; the first of a class is timed every way on numbers made up for it, and the verdict is kept
with the compiled kernels. Results of one machine thus do not change from run to run.
"""

from __future__ import annotations

from functools import cache
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.kernels.cores import cores
from eindecomp.kernels.cpu.loops.launch import LoopsCall, launch_together
from eindecomp.kernels.cpu.products.blas_libraries import libraries
from eindecomp.kernels.cpu.products.blas_threads import one_thread_each
from eindecomp.kernels.cpu.products.blocks import second_cache
from eindecomp.kernels.cpu.products.product import WORTH, MatrixSteps, Product
from eindecomp.kernels.cpu.verdicts import Verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eindecomp.kernels.cpu.loops.launch import Launch
    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]
    Ways = Callable[[Product], Mapping[str, Launch]]

_EXACT = 8
"""Rows up to which every number of them is a class of its own: kernels differ."""
_PARTS = 8
"""Into how many parts a power of two is cut to round sides, which are rows of a memory's lines."""
_ODD = 48
"""How far the sample of a side that is no round number is from one: rows of memory at round
distances push each other out of caches."""
_LONG = 512
"""From which length on that matters."""
_SIDE = 2**15
"""The longest side that is measured; longer ones behave alike."""
_MATRIX = 2**23
"""The most numbers in a matrix that is measured: more than caches hold near a core."""
_LINES = 8
"""How much shorter than they are long lines may be few, of what is measured."""
_WORK = 2**30
"""The most multiply-adds that are measured at a time: some tens of milliseconds."""
_ALL_CORES = WORTH
"""Multiply-adds from which on all cores are measured at once: they share memory, as in a run."""
_ROUNDS = 12
_ENOUGH = 0.1  # seconds of one way, after which four rounds will do
_SECONDS = 1e-4  # that a timing lasts at least, so that the clock tells it from nothing
_CLEARLY = 0.97  # of another way's time, to be preferred to it
_SEPARATOR = ", "  # between ways, from the fastest to the slowest


def fastest(product: Product, found: Mapping[str, Launch], ways: Ways) -> Launch:
    """Which of a product's ways is fastest for products of its class; `ways` finds a sample's."""
    if len(found) == 1:
        return next(iter(found.values()))
    sample = _sample(product)
    ranked = _VERDICTS.find(
        _title(sample),
        lambda: _SEPARATOR.join(_ranked(_times(sample, ways(sample)))),
        lambda text: _first(text, found) is not None,
    )
    way = _first(ranked, found)
    return next(iter(found.values())) if way is None else found[way]


def _times(sample: Product, ways: Mapping[str, Launch]) -> dict[str, float]:
    """The seconds of each way, with what it takes to call it."""
    holding = _holding_seconds()
    with one_thread_each():
        times = _measure(sample, ways)
    return {
        name: times[name] + (holding if isinstance(way, LoopsCall) and way.uses_blas else 0.0)
        for name, way in ways.items()
    }


@cache
def _holding_seconds() -> float:
    """What it takes to hold libraries to one thread, which only who calls one has to.

    A product leaves a cache without any of the code that does so.
    """
    product = np.zeros(2 * second_cache(), np.uint8)
    seconds: list[float] = []
    for _ in range(9):
        product += 1
        start = perf_counter()
        with one_thread_each():
            pass
        seconds.append(perf_counter() - start)
    return sorted(seconds)[len(seconds) // 2]


def _first(ranked: str, found: Mapping[str, Launch]) -> str | None:
    """The fastest way that there is: not every product of a class can be computed every way."""
    return next((way for way in ranked.split(_SEPARATOR) if way in found), None)


def _ranked(times: dict[str, float]) -> list[str]:
    """Ways from the fastest to the slowest, those of one speed in the order in which they came."""
    found: list[str] = []
    while times:
        best = next(iter(times))
        for way, seconds in times.items():
            if seconds < _CLEARLY * times[best]:
                best = way
        found.append(best)
        del times[best]
    return found


def _sample(product: Product) -> Product:
    """A product that stands for all of the same class, as compact as it can be."""
    m, n, k = product.shape
    # How many rows there are changes from call to call, as the lengths of texts do: of the two
    # outer sides the shorter one is rounded more than what is as long as the model says.
    m, n = (_round(size, 1 if size == min(m, n) > _LONG // 8 else _PARTS) for size in (m, n))
    k = _round(k, _PARTS)
    m, n, k = _shrunk(product, m, n, k)
    items = [of.itemsize for of in product.types]
    own = zip(product.sides, _shapes(product.shape), _shapes((m, n, k)), items, strict=True)
    x, y, z = (_lie(*each) for each in own)
    count = 1
    if product.loops:
        worth = -(-WORTH // (m * n * k))
        count = _round(min(prod(loop[0] for loop in product.loops), worth))
    steps = [
        max(side.row * rows, side.column * columns, item)
        for side, (rows, columns), item in zip((x, y, z), _shapes((m, n, k)), items, strict=True)
    ]
    loops = ((count, steps[0], steps[1], steps[2]),) if count > 1 else ()
    return Product(product.types, (m, n, k), (x, y, z), loops, (), product.add)


def _shrunk(product: Product, m: int, n: int, k: int) -> tuple[int, int, int]:
    """Sides of a product that is measured in little time, few rows still few.

    The lines of the long matrix keep their length as long as there are many: how far they are from
    each other is what caches care about.
    """
    x, y, _ = product.sides
    is_by_depth = abs(y.row) < abs(y.column) if m <= n else abs(x.column) < abs(x.row)
    sides = {"m": m, "n": n, "k": k}
    across = ("n" if m <= n else "m") if is_by_depth else "k"
    while True:
        m, n, k = sides.values()
        if k * max(m, n) <= _MATRIX and m * n <= _MATRIX and m * n * k <= _WORK:
            return m, n, k
        longest = max(sides, key=lambda side: (sides[side], side == "k"))
        many = sides[across] * _LINES >= sides[longest]
        sides[across if many else longest] //= 2


def _shapes(shape: tuple[int, int, int]) -> tuple[tuple[int, int], ...]:
    """The rows and columns of the inputs and the result."""
    m, n, k = shape
    return (m, k), (k, n), (m, n)


def _round(size: int, parts: int = 1) -> int:
    """A size that stands for others: the next of so many parts of the next power of two."""
    if size <= _EXACT:
        return size
    step = max(1, (1 << (size - 1).bit_length()) // parts)
    rounded = -(-size // step) * step
    is_odd = parts > 1 and size >= _LONG and rounded != size
    return min(_SIDE, rounded) - (_ODD if is_odd else 0)


def _lie(
    side: MatrixSteps, shape: tuple[int, int], sample: tuple[int, int], item: int
) -> MatrixSteps:
    """A matrix of another shape with neighbours where one has them, and apart if those of it are.

    A tile's rows are apart: they are parts of longer ones.
    """
    by_rows = side.column == item or (side.row != item and side.row >= side.column)
    if not by_rows:
        turned = (shape[1], shape[0]), (sample[1], sample[0])
        return _lie(side.turned, *turned, item).turned
    apart = side.column == item and side.row > shape[1] * item
    far = sample[1] * item * (2 if apart else 1)
    return MatrixSteps(far if side.row else 0, item if side.column else 0)


def _title(sample: Product) -> str:
    types = " ".join(of.name for of in sample.types)
    orders = " ".join(
        ("rows" if side.column == of.itemsize else "columns")
        + (" apart" if _is_apart(side, shape, of.itemsize) else "")
        for side, shape, of in zip(sample.sides, _shapes(sample.shape), sample.types, strict=True)
    )
    count = sample.loops[0][0] if sample.loops else 1
    return f"{types}, {count} × {sample.shape}, {orders}, {'added' if sample.add else 'set'}"


def _is_apart(side: MatrixSteps, shape: tuple[int, int], item: int) -> bool:
    return side.row > shape[1] * item if side.column == item else side.column > shape[0] * item


def _measure(sample: Product, ways: Mapping[str, Launch]) -> dict[str, float]:
    """The best seconds of each way, taken in turns."""
    m, n, k = sample.shape
    count = sample.loops[0][0] if sample.loops else 1
    sizes = [
        count * max(side.row * rows, side.column * columns, of.itemsize) // of.itemsize
        for side, (rows, columns), of in zip(
            sample.sides, _shapes(sample.shape), sample.types, strict=True
        )
    ]
    many = cores() if count * m * n * k >= _ALL_CORES else 1
    arrays = [
        [_numbers(size, of) for size, of in zip(sizes, sample.types, strict=True)]
        for _ in range(many)
    ]

    def launch(way: Launch) -> None:
        if many == 1:
            way.launch(arrays[0][:2], arrays[0][2:], ())
        else:
            launch_together([(way, own[:2], own[2:]) for own in arrays], ())

    best = dict.fromkeys(ways, np.inf)
    repeats: dict[str, int] = {}
    start = perf_counter()
    for turn in range(_ROUNDS + 1):
        if turn > 4 and perf_counter() - start > _ENOUGH * len(ways):
            break
        for name, way in ways.items():
            begun = perf_counter()
            for _ in range(repeats.get(name, 1)):
                launch(way)
            seconds = perf_counter() - begun
            if turn == 0:
                repeats[name] = max(1, round(_SECONDS / max(seconds, 1e-9)))
            else:
                best[name] = min(best[name], seconds / repeats[name])
    return best


def _numbers(count: int, of: DType) -> Array:
    """Numbers of no meaning, all of them ordinary: odd ones would take longer."""
    return np.resize(np.linspace(-1, 1, 97), count).astype(of)


_VERDICTS = Verdicts("products, ranked", lambda: [library.name for library in libraries()])

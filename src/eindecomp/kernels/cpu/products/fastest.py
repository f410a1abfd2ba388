"""Which way to compute a product is the fastest on this machine: measured once, and remembered.

Libraries and loops of our own win and lose by the processor, the shape and the order in memory, so
nothing is decided here by rules. Products fall into classes of about the same shape, type and
order; the first of a class is timed every way on numbers made up for it, and the verdict is kept
with the compiled kernels. Results of one machine thus do not change from run to run.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from functools import cache
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from eindecomp.kernels.cache import load, store
from eindecomp.kernels.cpu.compiling.compile import versions
from eindecomp.kernels.cpu.products.blas_libraries import libraries
from eindecomp.kernels.cpu.products.blas_threads import one_thread_each
from eindecomp.kernels.cpu.products.product import MatrixSteps, Product

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eindecomp.kernels.cpu.loops.launch import Launch
    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]
    Ways = Callable[[Product], Mapping[str, Launch]]

_EXACT = 8
"""Rows up to which every number of them is a class of its own: kernels differ."""
_SIDE = 2**12
"""The longest side that is measured; longer ones behave alike."""
_MATRIX = 2**23
"""The most numbers in a matrix that is measured: more than caches hold near a core."""
_WORK = 2**30
"""The most multiply-adds that are measured at a time: some tens of milliseconds."""
_ROUNDS = 12
_ENOUGH = 0.1  # seconds of one way, after which four rounds will do
_SECONDS = 1e-4  # that a timing lasts at least, so that the clock tells it from nothing
_CLEARLY = 0.97  # of another way's time, to be preferred to it

_lock = threading.RLock()


def fastest(product: Product, found: Mapping[str, Launch], ways: Ways) -> Launch:
    """Which of a product's ways is fastest for products of its class; `ways` finds a sample's."""
    if len(found) == 1:
        return next(iter(found.values()))
    sample = _sample(product)
    name = _title(sample)
    with _lock:
        choices = _choices()
        if choices.get(name) not in found:
            with one_thread_each():
                times = _measure(sample, ways(sample))
            choices[name] = _best({way: times[way] for way in found if way in times}, found)
            _remember(choices)
    return found[choices[name]]


def _best(times: Mapping[str, float], found: Mapping[str, Launch]) -> str:
    best = next(iter(found))
    for way, seconds in times.items():
        if seconds < _CLEARLY * times.get(best, np.inf):
            best = way
    return best


def _sample(product: Product) -> Product:
    """A product that stands for all of the same class, as compact as it can be."""
    m, n, k = (size if size <= _EXACT else _round(size) for size in product.shape)
    while k * max(m, n) > _MATRIX or m * n > _MATRIX or m * n * k > _WORK:
        # The longest shrinks first, so that few rows stay few.
        m, n, k = (size // 2 if size == max(m, n, k) else size for size in (m, n, k))
    items = [of.itemsize for of in product.types]
    x, y, z = (
        _lie(side, shape, item)
        for side, shape, item in zip(product.sides, ((m, k), (k, n), (m, n)), items, strict=True)
    )
    count = 1
    if product.loops:
        work = max(1, _WORK // 2**10 // (m * n * k))
        count = _round(min(prod(loop[0] for loop in product.loops), work))
    steps = (m * k * items[0], k * n * items[1], m * n * items[2])
    loops = ((count, *steps),) if count > 1 else ()
    return Product(product.types, (m, n, k), (x, y, z), loops, (), product.add)


def _round(size: int) -> int:
    """The next power of two, up to the longest side that is measured."""
    return min(_SIDE, 1 << (size - 1).bit_length())


def _lie(side: MatrixSteps, shape: tuple[int, int], item: int) -> MatrixSteps:
    """A compact matrix with neighbours where another has them."""
    rows, columns = shape
    by_rows = side.column == item or (side.row != item and side.row >= side.column)
    if by_rows:
        return MatrixSteps(columns * item if side.row else 0, item if side.column else 0)
    return MatrixSteps(item if side.row else 0, rows * item if side.column else 0)


def _title(sample: Product) -> str:
    types = " ".join(of.name for of in sample.types)
    orders = " ".join(
        "rows" if side.column == of.itemsize else "columns"
        for side, of in zip(sample.sides, sample.types, strict=True)
    )
    count = sample.loops[0][0] if sample.loops else 1
    return f"{types}, {count} × {sample.shape}, {orders}, {'added' if sample.add else 'set'}"


def _measure(sample: Product, ways: Mapping[str, Launch]) -> dict[str, float]:
    """The best seconds of each way, taken in turns."""
    m, n, k = sample.shape
    count = sample.loops[0][0] if sample.loops else 1
    x, y, z = (
        _numbers(count * size, of)
        for size, of in zip((m * k, k * n, m * n), sample.types, strict=True)
    )
    best = dict.fromkeys(ways, np.inf)
    repeats: dict[str, int] = {}
    start = perf_counter()
    for turn in range(_ROUNDS + 1):
        if turn > 4 and perf_counter() - start > _ENOUGH * len(ways):
            break
        for name, way in ways.items():
            begun = perf_counter()
            for _ in range(repeats.get(name, 1)):
                way.launch([x, y], [z], ())
            seconds = perf_counter() - begun
            if turn == 0:
                repeats[name] = max(1, round(_SECONDS / max(seconds, 1e-9)))
            else:
                best[name] = min(best[name], seconds / repeats[name])
    return best


def _numbers(count: int, of: DType) -> Array:
    """Numbers of no meaning, all of them ordinary: odd ones would take longer."""
    return np.resize(np.linspace(-1, 1, 97), count).astype(of)


@cache
def _choices() -> dict[str, str]:
    """The verdicts so far, of this process and those before it."""
    return _read()


def _read() -> dict[str, str]:
    with suppress(ValueError):
        read: Any = json.loads(load(_key()) or b"{}")
        if isinstance(read, dict):
            entries = cast("dict[object, object]", read)
            return {str(name): str(way) for name, way in entries.items()}
    return {}


def _remember(choices: dict[str, str]) -> None:
    # Others may have measured meanwhile: what they know is kept, what we know counts.
    choices |= {name: way for name, way in _read().items() if name not in choices}
    store(_key(), json.dumps(choices).encode())


@cache
def _key() -> str:
    """Under which name the verdicts of this machine are kept."""
    return repr(["fastest", versions(), [library.name for library in libraries()]])

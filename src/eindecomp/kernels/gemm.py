"""Product-sums of two inputs as matrix products, copying as little as the layout allows.

Every loop is a batch (both inputs and the result have it), a row m (the first input and the
result), a column n (the second and the result) or summed, k (both inputs). BLAS takes a matrix if
its rows or columns are neighbours in memory and either index is one step. So the loops of m, n and
k are put in an order in which as many arrays as possible see one step; outer loops of m and n may
instead be left to the batch, and what still does not fit is copied. `_price` decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations, product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from eindecomp.kernels.layout import Layout, lay_out, sizes_of, strides_of
from eindecomp.lang.dtypes import FLOAT32, LOW_PRECISION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.einsum import EinSum, Labels

    Array = np.ndarray[Any, Any]

# Measured on a Neoverse-N1 core: what a call costs, copying an element, one multiply-add.
_CALL, _COPY, _MULADD = 1e-6, 1.5e-9, 3.5e-11
_SMALL = 8**3
"""Multiply-adds of one matrix product below which generated loops are faster."""
_THIN = 8
"""Product of the two shortest sides below which a matrix product is mostly calls."""
_LONG = 2**14
"""Elements of a matrix from which BLAS multiplies it by a vector faster than generated loops."""
_ROWS = 512
"""Rows of a low-precision product that are widened at a time."""
_ORDERS = 4
"""Loops of one class up to which every order is tried."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """How arrays are seen as stacks of matrices: [batch…, m, n] and so on, each class in order."""

    layout: Layout
    batch: Labels
    rows: Labels
    columns: Labels
    summed: Labels
    copied: tuple[bool, bool, bool]
    """Whether the first input, the second and the result do not fit BLAS as they lie."""


class Gemm:
    """A product-sum of two inputs; `plan` says whether matrix products are the way."""

    def __init__(self, op: EinSum, dtypes: Sequence[DType], out: DType) -> None:
        self.op = op
        self.low = out in LOW_PRECISION or any(t in LOW_PRECISION for t in dtypes)

    @staticmethod
    def suits(op: EinSum, dtypes: Sequence[DType], out: DType) -> bool:
        """Whether BLAS has the types."""
        wide = {FLOAT32 if t in LOW_PRECISION else t for t in (*dtypes, out)}
        return op.is_contraction and len(op.inputs) == 2 and wide <= _BLAS and len(wide) == 1

    def multiply(self, how: Matrices, operands: Sequence[Array], out: Array) -> None:
        """Compute the result of arrays of the layout that this way was prepared for."""
        if self.low:
            _multiply_low(how, operands, out)
        else:
            _multiply(how, operands, out)

    def prepare(self, operands: Sequence[Array], out: Array) -> Matrices | None:
        """The way to compute arrays of a layout; None if matrix products are not the way."""
        op = self.op
        sizes = sizes_of([*op.inputs, op.output], [*operands, out])
        first, second = (strides_of(own, x) for own, x in zip(op.inputs, operands, strict=True))
        layout = lay_out(sizes, [first, second], [strides_of(op.output, out)], op.output)
        x, y, z = (set(own) for own in layout.arrays)
        # Loops of one array alone are summed or repeated: generated loops do that.
        if (x ^ y) & set(layout.aggregated) or z - x - y:
            return None
        classes = [[k for k in layout.results if k in x & y]]
        classes += [[k for k in layout.results if k in own] for own in (x - y, y - x)]
        classes.append(layout.aggregated)
        m, n, k = (prod(layout.sizes[label] for label in part) for part in classes[1:])
        shortest, middle, _ = sorted((m, n, k))
        if m * n * k < _SMALL or k < 2 or (shortest > 1 and shortest * middle < _THIN):
            return None
        if shortest > 1:
            return _cheapest(layout, classes, out.itemsize)
        if self.low or m * n * k < _LONG or middle < 2:
            return None
        found = _cheapest(layout, classes, out.itemsize)
        return None if any(found.copied) else found


_BLAS = {np.dtype(t) for t in ("float32", "float64", "complex64", "complex128")}


def _cheapest(layout: Layout, classes: list[list[str]], itemsize: int) -> Matrices:
    batch, rows, columns, summed = classes
    choices = (
        _orders(layout, rows, looped=True),
        _orders(layout, columns, looped=True),
        _orders(layout, summed, looped=False),
    )
    found: list[tuple[float, int, Matrices]] = []
    for count, ((m_loop, m), (n_loop, n), (_, k)) in enumerate(product(*choices)):
        x, y, z = layout.arrays
        sides = ((x, m, k), (y, k, n), (z, m, n))
        copied = tuple(not _fits(layout, own, a, b, itemsize) for own, a, b in sides)
        matrices = Matrices(
            layout, (*batch, *m_loop, *n_loop), m, n, k, (copied[0], copied[1], copied[2])
        )
        found.append((_price(matrices), count, matrices))
    return min(found, key=lambda entry: entry[:2])[2]


def _orders(
    layout: Layout, part: list[str], *, looped: bool
) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The orders of a class of loops, cut into those left to the batch and the others."""
    if len(part) <= _ORDERS:
        orders = list(permutations(part))
    else:
        orders = [
            tuple(sorted(part, key=lambda k: -abs(own[k])))
            for own in layout.arrays
            if set(part) <= set(own)
        ]
    cuts = range(max(1, len(part))) if looped else range(1)
    return [(order[:cut], order[cut:]) for order in orders for cut in cuts]


def _step(layout: Layout, own: dict[str, int], loops: Sequence[str]) -> int | None:
    """The one step of several loops in an array; None where there is none."""
    if not loops:
        return 0
    step = expected = own[loops[-1]]
    for loop in reversed(loops):
        if own[loop] != expected:
            return None
        expected *= layout.sizes[loop]
    return step


def _fits(
    layout: Layout, own: dict[str, int], rows: Sequence[str], columns: Sequence[str], itemsize: int
) -> bool:
    """Whether BLAS takes an array's matrices as they lie."""
    m, n = (_step(layout, own, part) for part in (rows, columns))
    if m is None or n is None:
        return False
    long, short = max(m, n), min(m, n)
    if not rows or not columns:
        return long > 0 and long % itemsize == 0
    inner = prod(layout.sizes[k] for k in (columns if n == short else rows))
    return short == itemsize and long % itemsize == 0 and long >= inner * itemsize


def _price(matrices: Matrices) -> float:
    """About how many seconds the products and copies take."""
    sizes = matrices.layout.sizes
    m, n, k = (
        prod(sizes[label] for label in part)
        for part in (matrices.rows, matrices.columns, matrices.summed)
    )
    calls = prod(sizes[label] for label in matrices.batch)
    # Products with few rows, columns or terms do not fill the machine.
    slow = (1 + 16 / m) * (1 + 16 / n) * (1 + 16 / k)
    seconds = calls * (_CALL + m * n * k * _MULADD * slow)
    for own, copied in zip(matrices.layout.arrays, matrices.copied, strict=True):
        if copied:
            seconds += _COPY * prod(sizes[label] for label in own)
    return seconds


def _see(matrices: Matrices, which: int, array: Array, loops: Sequence[str]) -> Array:
    """An array as one with the given loops as dimensions; those it lacks are repeated."""
    sizes, own = matrices.layout.sizes, matrices.layout.arrays[which]
    return as_strided(
        array,
        [sizes[k] for k in loops],
        [own.get(k, 0) for k in loops],
        writeable=which == 2,
    )


def _stack(matrices: Matrices, which: int, array: Array) -> Array:
    """An array as a stack of matrices, copied if it does not fit."""
    sizes, own = matrices.layout.sizes, matrices.layout.arrays[which]
    rows, columns = (
        (matrices.rows, matrices.summed),
        (matrices.summed, matrices.columns),
        (matrices.rows, matrices.columns),
    )[which]
    shape = [prod(sizes[k] for k in part) for part in (rows, columns)]
    if not matrices.copied[which]:
        steps = [_step(matrices.layout, own, part) or 0 for part in (rows, columns)]
        return as_strided(
            array,
            [*(sizes[k] for k in matrices.batch), *shape],
            [*(own.get(k, 0) for k in matrices.batch), *steps],
            writeable=which == 2,
        )
    batch = [k for k in matrices.batch if k in own]
    seen = _see(matrices, which, array, [*batch, *rows, *columns])
    fresh = np.empty(seen.shape, array.dtype)
    if which < 2:
        np.copyto(fresh, seen)
    ends = [sizes[k] if k in own else 1 for k in matrices.batch]
    return fresh.reshape([*ends, *shape])


def _multiply(matrices: Matrices, operands: Sequence[Array], out: Array) -> None:
    first, second = (_stack(matrices, k, x) for k, x in enumerate(operands))
    result = _stack(matrices, 2, out)
    np.matmul(first, second, out=result)
    if matrices.copied[2]:
        loops = [*matrices.batch, *matrices.rows, *matrices.columns]
        seen = _see(matrices, 2, out, loops)
        np.copyto(seen, result.reshape(seen.shape))


def _multiply_low(matrices: Matrices, operands: Sequence[Array], out: Array) -> None:
    """Multiply in float32, widening one batch's columns and some of its rows at a time."""
    m, n, k = matrices.rows, matrices.columns, matrices.summed
    sides = ((m, k), (k, n), (m, n))
    seen = [
        _see(matrices, which, array, [*matrices.batch, *a, *b])
        for which, (array, (a, b)) in enumerate(zip((*operands, out), sides, strict=True))
    ]
    sizes = matrices.layout.sizes
    columns = [sizes[label] for label in n]
    width, depth = prod(columns), prod(sizes[label] for label in k)
    length = sizes[m[0]]
    step = max(1, _ROWS * length // max(1, prod(sizes[label] for label in m)))
    for place in np.ndindex(*(sizes[label] for label in matrices.batch)):
        x, y, z = (array[place] for array in seen)
        right = y.astype(np.float32).reshape(depth, width)
        for rows in _cuts(length, step):
            left = x[rows].astype(np.float32).reshape(-1, depth)
            z[rows] = np.matmul(left, right).reshape(z[rows].shape)


def _cuts(size: int, step: int) -> Iterator[slice]:
    return (slice(start, start + step) for start in range(0, size, step))

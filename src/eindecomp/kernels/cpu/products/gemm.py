"""Product-sums of two inputs as matrix products, copying as little as the layout allows.

Every loop is a batch (both inputs and the result have it), a row m (the first input and the
result), a column n (the second and the result) or summed, k (both inputs). BLAS takes a matrix if
its rows or columns are neighbours in memory and either index is one step. So the loops of m, n and
k are put in an order in which as many arrays as possible see one step; outer loops of m and n may
instead be left to the batch, and what still does not fit is copied. `price` decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from eindecomp.kernels.cpu.loops.launch import LoopsCall, Pack
from eindecomp.kernels.cpu.loops.nest import Strides, lay_out
from eindecomp.kernels.cpu.products.blas_libraries import blas_library
from eindecomp.kernels.cpu.products.calls import MatrixSteps, StackProduct, blas_call, few_rows_call
from eindecomp.kernels.tile_arrays import contiguous, sizes_of, strides_of
from eindecomp.lang.dtypes import LOW_PRECISION, Array, DType, widen
from eindecomp.lang.einsum import EinSum, Labels

# Rough seconds of a call, of copying an element, of one multiply-add: to rank orders of loops.
_CALL, _COPY, _MULADD = 1e-6, 1.5e-9, 3.5e-11
_SMALL = 8**3
"""Multiply-adds of one matrix product below which generated loops are faster."""
_THIN = 8
"""Product of the two shortest sides below which a matrix product is mostly calls."""
_LONG = 2**14
"""Elements of a matrix from which BLAS multiplies it by a vector faster than generated loops."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """How arrays are seen as stacks of matrices: [batch…, m, n] and so on, each class in order."""

    layout: Strides
    batch: Labels
    rows: Labels
    columns: Labels
    summed: Labels
    copied: tuple[bool, bool, bool]
    """For the first input, the second and the result: whether BLAS cannot take it as it lies."""

    def size(self, loops: Iterable[str]) -> int:
        """How many indices several loops have together."""
        return prod(self.layout.sizes[label] for label in loops)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The extents m, n and k."""
        return self.size(self.rows), self.size(self.columns), self.size(self.summed)

    @property
    def sides(self) -> tuple[tuple[Labels, Labels], ...]:
        """The rows and columns of the first input, the second and the result."""
        m, n, k = self.rows, self.columns, self.summed
        return (m, k), (k, n), (m, n)


class Gemm:
    """A product-sum of two inputs; `prepare` decides whether matrix products compute it."""

    def __init__(self, op: EinSum, dtypes: Sequence[DType], out: DType) -> None:
        self.op = op
        self.low = out in LOW_PRECISION or any(t in LOW_PRECISION for t in dtypes)

    @staticmethod
    def suits(op: EinSum, dtypes: Sequence[DType], out: DType) -> bool:
        """Whether BLAS has the types."""
        wide = {widen(t) for t in (*dtypes, out)}
        return op.is_contraction and len(op.inputs) == 2 and wide <= _BLAS and len(wide) == 1

    def prepare(self, operands: Sequence[Array], out: Array) -> LoopsCall | None:
        """The call that computes arrays of a layout; None if generated loops are faster."""
        matrices = self.arranged(operands, out)
        if matrices is None:
            return None
        types = (operands[0].dtype, operands[1].dtype, out.dtype)
        if not matrices.copied[2]:
            call = few_rows_call(_product(matrices, types, types))
            if call is not None:
                return call
        # A vector of low precision is widened by generated loops, as they read.
        if self.low and not (matrices.rows and matrices.columns):
            return None
        wide = widen(out.dtype)
        return blas_call(_product(matrices, types, (wide, wide, wide)), blas_library())

    def arranged(self, operands: Sequence[Array], out: Array) -> Matrices | None:
        """The cheapest way to see arrays as matrices; None if loops are cheaper."""
        op = self.op
        sizes = sizes_of([*op.inputs, op.output], [*operands, out])
        given = [strides_of(own, x.strides) for own, x in zip(op.inputs, operands, strict=True)]
        layout = lay_out(sizes, given, [strides_of(op.output, out.strides)], op.output)
        x, y, z = (set(own) for own in layout.arrays)
        # Loops of one array alone are summed or repeated: generated loops do that.
        if (x ^ y) & set(layout.aggregated) or z - x - y:
            return None
        classes = [[k for k in layout.results if k in own] for own in (x & y, x - y, y - x)]
        classes.append(layout.aggregated)
        m, n, k = (prod(layout.sizes[label] for label in part) for part in classes[1:])
        shortest, middle, _ = sorted((m, n, k))
        if m * n * k < _SMALL or k < 2 or (shortest > 1 and shortest * middle < _THIN):
            return None
        if shortest == 1 and (m * n * k < _LONG or middle < 2):
            return None
        itemsizes = [operands[0].itemsize, operands[1].itemsize, out.itemsize]
        cheapest = min(_candidates(layout, classes, itemsizes), key=price)
        return None if shortest == 1 and any(cheapest.copied) else cheapest


_BLAS = {np.dtype(t) for t in ("float32", "float64", "complex64", "complex128")}


def _candidates(
    layout: Strides, classes: Sequence[Sequence[str]], itemsizes: Sequence[int]
) -> Iterator[Matrices]:
    """The ways to cut loops into batch and matrices."""
    batch, rows, columns, summed = classes
    ways = (_cuts_of(layout, part, looped=part is not summed) for part in (rows, columns, summed))
    for (m_loop, m), (n_loop, n), (_, k) in product(*ways):
        sides = zip(layout.arrays, ((m, k), (k, n), (m, n)), itemsizes, strict=True)
        first, second, result = (not _fits(layout, own, a, b, size) for own, (a, b), size in sides)
        yield Matrices(layout, (*batch, *m_loop, *n_loop), m, n, k, (first, second, result))


def _cuts_of(layout: Strides, part: Sequence[str], *, looped: bool) -> list[tuple[Labels, Labels]]:
    """The runs of a class of loops that some array may see as one step, and the other loops.

    Loops of one step follow one another from the longest stride to the shortest.
    """
    if not part:
        return [((), ())]
    rest_by_run: dict[Labels, Labels] = {}
    for own in layout.arrays:
        if part[0] in own:
            order = sorted(part, key=lambda k: -abs(own[k]))
            for length in range(len(order), 0 if looped else len(order) - 1, -1):
                for start in range(len(order) - length + 1):
                    run = order[start : start + length]
                    rest_by_run.setdefault(tuple(run), tuple(k for k in order if k not in run))
    return [(rest, run) for run, rest in rest_by_run.items()]


def _step(layout: Strides, own: dict[str, int], loops: Sequence[str]) -> int | None:
    """The step of several loops in an array as one; None if they have no common step."""
    if not loops:
        return 0
    step = expected = own[loops[-1]]
    for loop in reversed(loops):
        if own[loop] != expected:
            return None
        expected *= layout.sizes[loop]
    return step


def _fits(
    layout: Strides, own: dict[str, int], rows: Sequence[str], columns: Sequence[str], itemsize: int
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


def price(matrices: Matrices) -> float:
    """About how many seconds the products and copies take."""
    m, n, k = matrices.shape
    # Products with few rows, columns or terms do not fill the machine.
    slow = (1 + 16 / m) * (1 + 16 / n) * (1 + 16 / k)
    seconds = matrices.size(matrices.batch) * (_CALL + m * n * k * _MULADD * slow)
    for own, copied in zip(matrices.layout.arrays, matrices.copied, strict=True):
        if copied:
            seconds += _COPY * matrices.size(own)
    return seconds


def _product(
    matrices: Matrices, types: tuple[DType, DType, DType], computed: tuple[DType, DType, DType]
) -> StackProduct:
    """The matrices by their places in memory, or in copies of the types that are computed."""
    layout, sizes = matrices.layout, matrices.layout.sizes
    steps: list[dict[str, int]] = []
    packs: list[Pack] = []
    for which, own in enumerate(layout.arrays):
        of = computed[which]
        if matrices.copied[which] or types[which] != of:
            rows, columns = matrices.sides[which]
            loops = [*(label for label in matrices.batch if label in own), *rows, *columns]
            shape, strides = (tuple(by[label] for label in loops) for by in (sizes, own))
            packs.append(Pack(which, shape, strides, of))
            steps.append(contiguous(loops, sizes, of.itemsize))
        else:
            steps.append(own)
    first, second, result = (
        MatrixSteps(*(_step(layout, own, part) or 0 for part in side))
        for own, side in zip(steps, matrices.sides, strict=True)
    )
    x, y, z = steps
    loops = tuple((sizes[t], x.get(t, 0), y.get(t, 0), z.get(t, 0)) for t in matrices.batch)
    return StackProduct(computed, matrices.shape, (first, second, result), loops, tuple(packs))

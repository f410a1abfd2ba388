"""Product-sums of two inputs as matrix products, copying as little as the layout allows.

Every loop is a batch (both inputs and the result have it), a row m (the first input and the
result), a column n (the second and the result) or summed, k (both inputs). BLAS takes a matrix if
its rows or columns are neighbours in memory and either index is one step. So the loops of m, n and
k are put in an order in which as many arrays as possible see one step; outer loops of m and n may
instead be left to the batch, and what still does not fit is copied. `_price` decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from eindecomp.kernels.cpu.loops.launch import Pack
from eindecomp.kernels.cpu.loops.nest import Strides, lay_out, strides_of
from eindecomp.kernels.cpu.products.blas_libraries import blas_library
from eindecomp.kernels.cpu.products.calls import MatrixSteps, Product, blas_call, few_rows_call
from eindecomp.kernels.tile_sizes import sizes_of
from eindecomp.lang.dtypes import FLOAT32, LOW_PRECISION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eindecomp.kernels.cpu.loops.launch import Launch
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.einsum import EinSum, Labels

    Array = np.ndarray[Any, Any]

# About what a call costs, copying an element, one multiply-add: to tell orders of loops apart.
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
    """Whether the first input, the second and the result do not fit BLAS as they lie."""


class Gemm:
    """A product-sum of two inputs; `prepare` says whether matrix products are the way."""

    def __init__(self, op: EinSum, dtypes: Sequence[DType], out: DType) -> None:
        self.op = op
        self.low = out in LOW_PRECISION or any(t in LOW_PRECISION for t in dtypes)

    @staticmethod
    def suits(op: EinSum, dtypes: Sequence[DType], out: DType) -> bool:
        """Whether BLAS has the types."""
        wide = {FLOAT32 if t in LOW_PRECISION else t for t in (*dtypes, out)}
        return op.is_contraction and len(op.inputs) == 2 and wide <= _BLAS and len(wide) == 1

    def prepare(self, operands: Sequence[Array], out: Array, *, add: bool = False) -> Launch | None:
        """What computes arrays of a layout; None if generated loops are faster.

        With `add` the result is added to what is there, and there may be no way to do so.
        """
        classed = self.classed(operands, out)
        if classed is None:
            return None
        types = (operands[0].dtype, operands[1].dtype, out.dtype)
        found = self.arrange(*classed, types)
        if found is None:
            return None
        if not found.copied[2]:
            product = _product(found, types, add)
            call = few_rows_call(product)
            if call is None and not self.low:
                call = blas_call(product, blas_library())
            if call is not None:
                return call
        # A vector of low precision is widened by generated loops, as they read.
        is_vector = not found.rows or not found.columns
        return None if add or (self.low and is_vector) else _Multiplied(found, self.low)

    def classed(
        self, operands: Sequence[Array], out: Array
    ) -> tuple[Strides, list[list[str]]] | None:
        """The loops by class: batch, rows, columns, summed; None if there are others."""
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
        return layout, classes

    def arrange(
        self, layout: Strides, classes: list[list[str]], types: tuple[DType, DType, DType]
    ) -> Matrices | None:
        """The cheapest matrices to see arrays as; None if loops are cheaper."""
        m, n, k = (prod(layout.sizes[label] for label in part) for part in classes[1:])
        shortest, middle, _ = sorted((m, n, k))
        if m * n * k < _SMALL or k < 2 or (shortest > 1 and shortest * middle < _THIN):
            return None
        if shortest == 1 and (m * n * k < _LONG or middle < 2):
            return None
        found = _cheapest(layout, classes, types)
        return None if shortest == 1 and any(found.copied) else found


_BLAS = {np.dtype(t) for t in ("float32", "float64", "complex64", "complex128")}


def _cheapest(
    layout: Strides, classes: list[list[str]], types: tuple[DType, DType, DType]
) -> Matrices:
    x, y, z = layout.arrays

    def priced() -> Iterator[tuple[float, Matrices]]:
        for (m_loop, m), (n_loop, n), (_, k) in product(*_candidates(layout, classes)):
            first, second, result = (
                not _fits(layout, own, a, b, of.itemsize)
                for own, a, b, of in zip((x, y, z), (m, k, m), (k, n, n), types, strict=True)
            )
            batch = (*classes[0], *m_loop, *n_loop)
            matrices = Matrices(layout, batch, m, n, k, (first, second, result))
            yield _price(matrices), matrices

    return min(priced(), key=lambda entry: entry[0])[1]


def _candidates(
    layout: Strides, classes: Sequence[Sequence[str]]
) -> tuple[list[tuple[Labels, Labels]], ...]:
    """For rows, columns and what is summed, the ways to cut loops into batch and matrix."""
    _, rows, columns, summed = classes
    return (
        _cuts_of(layout, rows, looped=True),
        _cuts_of(layout, columns, looped=True),
        _cuts_of(layout, summed, looped=False),
    )


def _cuts_of(layout: Strides, part: Sequence[str], *, looped: bool) -> list[tuple[Labels, Labels]]:
    """The runs of a class of loops that some array may see as one step, and the other loops.

    Loops of one step follow one another from the longest stride to the shortest.
    """
    if not part:
        return [((), ())]
    found: dict[Labels, Labels] = {}
    for own in layout.arrays:
        if part[0] in own:
            order = sorted(part, key=lambda k: -abs(own[k]))
            for length in range(len(order), 0 if looped else len(order) - 1, -1):
                for start in range(len(order) - length + 1):
                    run = order[start : start + length]
                    found.setdefault(tuple(run), tuple(k for k in order if k not in run))
    return [(rest, run) for run, rest in found.items()]


def _step(layout: Strides, own: dict[str, int], loops: Sequence[str]) -> int | None:
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
    rows, columns = _pairs(matrices)[which]
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


def _product(matrices: Matrices, types: tuple[DType, DType, DType], add: bool) -> Product:
    """The matrices by their places in memory."""
    layout, sizes = matrices.layout, matrices.layout.sizes
    parts = (matrices.rows, matrices.columns, matrices.summed)
    m, n, k = (prod(sizes[label] for label in part) for part in parts)
    sides: list[MatrixSteps] = []
    steps: list[dict[str, int]] = []
    packs: list[Pack] = []
    for which, ((rows, columns), of) in enumerate(zip(_pairs(matrices), types, strict=True)):
        own = layout.arrays[which]
        if matrices.copied[which]:
            loops = [*(label for label in matrices.batch if label in own), *rows, *columns]
            packs.append(Pack(which, tuple(sizes[t] for t in loops), tuple(own[t] for t in loops)))
            own = _contiguous(loops, sizes, of.itemsize)
        sides.append(MatrixSteps(*(_step(layout, own, part) or 0 for part in (rows, columns))))
        steps.append(own)
    x, y, z = steps
    loops = tuple((sizes[t], x.get(t, 0), y.get(t, 0), z.get(t, 0)) for t in matrices.batch)
    return Product(types, (m, n, k), (sides[0], sides[1], sides[2]), loops, tuple(packs), add)


def _contiguous(loops: Sequence[str], sizes: dict[str, int], itemsize: int) -> dict[str, int]:
    """The steps of an array whose loops lie one in another."""
    found: dict[str, int] = {}
    for loop in reversed(loops):
        found[loop] = itemsize
        itemsize *= sizes[loop]
    return found


def _pairs(matrices: Matrices) -> tuple[tuple[Labels, Labels], ...]:
    """The rows and columns of the first input, the second and the result."""
    m, n, k = matrices.rows, matrices.columns, matrices.summed
    return (m, k), (k, n), (m, n)


@dataclass(frozen=True, slots=True)
class _Multiplied:
    """A product that no call takes as it lies: widened, or put into place after it is computed."""

    matrices: Matrices
    low: bool

    def launch(self, inputs: Sequence[Array], outputs: Sequence[Array], _: object) -> None:
        """Compute the result of arrays of the matrices' layout."""
        matrices, [out] = self.matrices, outputs
        first, second = (_stack(matrices, k, x) for k, x in enumerate(inputs))
        result = _stack(matrices, 2, out)
        if self.low:
            batch = result.shape[:-2]
            x, y = (np.broadcast_to(each, (*batch, *each.shape[-2:])) for each in (first, second))
            for place in np.ndindex(batch):  # so that little is wide at a time
                left, right = x[place].astype(np.float32), y[place].astype(np.float32)
                result[place] = np.matmul(left, right)
        else:
            np.matmul(first, second, out=result)
        if matrices.copied[2]:
            loops = [*matrices.batch, *matrices.rows, *matrices.columns]
            seen = _see(matrices, 2, out, loops)
            np.copyto(seen, result.reshape(seen.shape))

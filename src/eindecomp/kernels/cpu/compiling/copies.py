"""Blocks that put parts of a matrix together, for `make_sums` to read from end to end.

- `make_copies`: a few columns, in float32 or wider, for many rows to be multiplied by;
- `make_panels`: several such panels at a time;
- `make_row_copies`: a few rows, for many panels to be multiplied by;
- `make_turned`: results that were computed as columns, put into place as rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir as untyped_ir
from numba.core import cgutils as untyped_cgutils

from eindecomp.kernels.cpu.compiling.vectors import Block, make_function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.lang.dtypes import DType

cgutils: Any = untyped_cgutils
ir: Any = untyped_ir
_I64 = ir.IntType(64)


def make_copies(of: DType, computed: DType, *, turned: bool) -> Any:
    """A panel of columns: a function of (y, y_term, y_column, panel, depth, vectors).

    The panel has a row of so many vectors for each of `depth` terms. Columns are neighbours in `y`;
    or terms are, if it is `turned`, of which there are at least as many as a vector has lanes.
    """

    def emit(builder: Any, numbers: Sequence[Any]) -> None:
        block = Block(builder, computed)
        y, y_term, y_column, panel, depth, vectors = numbers
        width = block.lanes
        row = builder.mul(vectors, _I64(width * computed.itemsize))

        def place(term: Any, vector: Any) -> Any:
            start = builder.add(panel, builder.mul(term, row))
            return builder.add(start, builder.mul(vector, _I64(width * computed.itemsize)))

        def turn(term: Any, vector: Any) -> None:
            start = builder.add(y, builder.mul(term, y_term))
            start = builder.add(start, builder.mul(builder.mul(vector, _I64(width)), y_column))
            columns = [block.load(of, block.at(start, y_column, k)) for k in range(width)]
            for k, value in enumerate(block.turned(columns)):
                block.store(value, place(builder.add(term, _I64(k)), vector))

        if turned:
            # The last terms are put there once more with those before them.
            turns = builder.sdiv(builder.add(depth, _I64(width - 1)), _I64(width))
            last = builder.sub(depth, _I64(width))
            with cgutils.for_range(builder, turns) as loop:
                term = builder.mul(loop.index, _I64(width))
                term = builder.select(builder.icmp_signed("<", term, last), term, last)
                with cgutils.for_range(builder, vectors) as inner:
                    turn(term, inner.index)
            return
        with cgutils.for_range(builder, depth) as loop:
            start = builder.add(y, builder.mul(loop.index, y_term))
            with cgutils.for_range(builder, vectors) as inner:
                offset = builder.mul(inner.index, _I64(width * of.itemsize))
                value = block.load(of, builder.add(start, offset))
                block.store(value, place(loop.index, inner.index))

    return make_function(6, emit)


def make_panels(of: DType, vectors: int) -> Any:
    """Panels side by side: a function of (y, y_term, panel, depth, panels).

    Columns are neighbours, and each row is read in one go: rows may lie far apart.
    """

    def emit(builder: Any, numbers: Sequence[Any]) -> None:
        block = Block(builder, of)
        y, y_term, panel, depth, panels = numbers
        row = vectors * block.lanes * of.itemsize
        step = builder.mul(depth, _I64(row))
        with cgutils.for_range(builder, depth) as loop:
            start = builder.add(y, builder.mul(loop.index, y_term))
            to = builder.add(panel, builder.mul(loop.index, _I64(row)))
            with cgutils.for_range(builder, panels) as inner:
                source = builder.add(start, builder.mul(inner.index, _I64(row)))
                place = builder.add(to, builder.mul(inner.index, step))
                offsets = [_I64(v * block.lanes * of.itemsize) for v in range(vectors)]
                many = [block.load(of, builder.add(source, offset)) for offset in offsets]
                for value, offset in zip(many, offsets, strict=True):
                    block.store(value, builder.add(place, offset))

    return make_function(5, emit)


def make_row_copies(rows: int, of: DType) -> Any:
    """A block of rows, term by term: a function of (x, x_row, block, depth).

    Terms are neighbours, at least as many as a vector has lanes; rows are a power of two.
    """

    def emit(builder: Any, numbers: Sequence[Any]) -> None:
        block = Block(builder, of)
        x, x_row, to, depth = numbers
        width = block.lanes
        # The last terms are put there once more with those before them.
        turns = builder.sdiv(builder.add(depth, _I64(width - 1)), _I64(width))
        last = builder.sub(depth, _I64(width))
        with cgutils.for_range(builder, turns) as loop:
            term = builder.mul(loop.index, _I64(width))
            term = builder.select(builder.icmp_signed("<", term, last), term, last)
            start = builder.add(x, builder.mul(term, _I64(of.itemsize)))
            place = builder.add(to, builder.mul(term, _I64(rows * of.itemsize)))
            many = [block.load(of, block.at(start, x_row, r)) for r in range(rows)]
            for r, value in enumerate(block.turned(many)):
                block.store(value, builder.add(place, _I64(r * width * of.itemsize)))

    return make_function(4, emit)


def make_turned(of: DType) -> Any:
    """Transposed numbers: a function of (x, x_row, z, z_row, rows, vectors).

    `x` has so many rows, at least as many as a vector has lanes, of so many vectors each.
    """

    def emit(builder: Any, numbers: Sequence[Any]) -> None:
        block = Block(builder, of)
        x, x_row, z, z_row, rows, vectors = numbers
        width = block.lanes
        # The last rows are put there once more with those before them.
        turns = builder.sdiv(builder.add(rows, _I64(width - 1)), _I64(width))
        last = builder.sub(rows, _I64(width))
        with cgutils.for_range(builder, turns) as loop:
            row = builder.mul(loop.index, _I64(width))
            row = builder.select(builder.icmp_signed("<", row, last), row, last)
            start = builder.add(x, builder.mul(row, x_row))
            to = builder.add(z, builder.mul(row, _I64(of.itemsize)))
            with cgutils.for_range(builder, vectors) as inner:
                source = builder.add(start, builder.mul(inner.index, _I64(width * of.itemsize)))
                many = [block.load(of, block.at(source, x_row, r)) for r in range(width)]
                place = builder.add(to, builder.mul(builder.mul(inner.index, z_row), _I64(width)))
                for r, value in enumerate(block.turned(many)):
                    block.store(value, block.at(place, z_row, r))

    return make_function(6, emit)

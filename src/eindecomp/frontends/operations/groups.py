"""Rows in groups whose sizes depend on the data: which group, aggregates and products by group.

Shapes are fixed, so groups are found by comparing every row with every group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.frontends.formulas import neutral
from eindecomp.frontends.join import Read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.trace import Trace
    from eindecomp.frontends.views import View


def combined_at(
    trace: Trace, x: View, index: Read, size: int, output: Sequence[int], agg: str
) -> View:
    """Elements aggregated at indices along a new dimension, the symbol after those of x.

    It costs the number of elements times the size of the new dimension. Where nothing is
    aggregated, there is the neutral element.
    """
    rank = len(x.dims)
    reads = [
        Read(x, tuple(range(rank))),
        index,
        Read(trace.iota(size, "int64"), (rank,)),
        Read(trace.number(neutral(agg, x.dtype), x.dtype), ()),
    ]
    return trace.einsum(reads, output, "where(y == z, x, x3)", agg)


def group_of(trace: Trace, ends: View, rows: int) -> View:
    """How many groups end at or before each row, by where each group ends."""
    reads = [Read(ends, (1,)), Read(trace.iota(rows, "int64"), (0,))]
    return trace.einsum(reads, (0,), "int64(x <= y)", "sum")


def ends_of(trace: Trace, sizes: View) -> View:
    """Where each group ends, by the sizes of groups that follow each other."""
    places = trace.iota(sizes.shape[0], "int64")
    reads = [Read(sizes, (1,)), Read(places, (1,)), Read(places, (0,))]
    return trace.einsum(reads, (0,), "where(y <= z, int64(x), 0)", "sum")


def grouped_product(trace: Trace, x: View, matrices: View, group: View, dtype: object) -> View:
    """Rows times the matrix of their group; rows of no group are 0.

    Every row meets every matrix, of which one product is kept: as many times the work as there are
    groups, and no row is dropped however many a group has. It can be cut by groups.
    """
    reads = [Read(x, (0, 2)), Read(matrices, (1, 2, 3))]
    every = trace.einsum(reads, (0, 1, 3), dtype=dtype)
    groups = trace.iota(matrices.shape[0], "int64")
    reads = [Read(every, (0, 1, 2)), Read(group, (0,)), Read(groups, (1,))]
    return trace.einsum(reads, (0, 2), "where(y == z, x, 0)", "sum", dtype)

"""Rows of arrays at indices, aggregated or written there, and groups of adjacent rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from eindecomp.frontends.draft import View
from eindecomp.frontends.formulas import evaluated, neutral
from eindecomp.frontends.join import Indexed
from eindecomp.frontends.operations import padded, placed, running
from eindecomp.frontends.trace import Trace
from eindecomp.lang.dtypes import INT64
from eindecomp.lang.scalar import Arg, Number, replace_args, used_args


def flat_index(trace: Trace, indices: Sequence[View], sizes: Sequence[int]) -> View:
    """One index into dimensions that are merged, in place of one for each."""
    flat = trace.cast(indices[0], "int64")
    for index, size in zip(indices[1:], sizes[1:], strict=True):
        flat = trace.map(f"x * {size} + y", flat, trace.cast(index, "int64"))
    return flat


def counts_along(trace: Trace, index: View) -> int | None:
    """The dimension along which an index is 0, 1, 2, … whatever the others are; None if none."""
    value = trace.formula(index)
    if value is None or len(used := used_args(value)) != 1:
        return None
    (along,) = used
    size = index.shape[along]
    elements = evaluated((size,), replace_args(value, {along: Arg(0)}), INT64)
    return along if np.array_equal(elements, np.arange(size)) else None


def looked_up(
    trace: Trace,
    x: View,
    at: Mapping[int, View],
    shape: Sequence[int],
    shared: Mapping[int, int] | None = None,
) -> View:
    """What lies at indices of dimensions of x: of the shape of the indices, then x's other ones.

    `shared` says which other dimensions of x are which of the indices as well.
    """
    along = dict(shared or {})
    rest = [k for k in range(len(x.dims)) if k not in at and k not in along]
    searched: dict[int, View] = {}
    gone: list[int] = []
    for dim, given in at.items():
        index = trace.expand(given, shape)
        counted = counts_along(trace, index)
        if index.number is not None:
            row = int(index.number.real)
            x = trace.slice(x, dim, row, row + 1)
            gone.append(dim)
        elif counted is None or counted in along.values() or shape[counted] > x.shape[dim]:
            searched[dim] = index
        else:
            x = trace.slice(x, dim, 0, shape[counted])
            along[dim] = counted
    # Symbols are the dimensions of the indices, then the rest of x's.
    symbols = [*along.values(), *(len(shape) + k for k in range(len(rest)))]
    table = trace.transpose(x, [*searched, *along, *rest, *gone])
    table = trace.squeeze(table, range(len(x.dims) - len(gone), len(x.dims)))
    if searched:
        sizes = [x.shape[dim] for dim in searched]
        table = trace.reshape(table, (prod(sizes), *table.shape[len(sizes) :]))
        [index, *more] = searched.values()
        index = flat_index(trace, [index, *more], sizes) if more else index
        pairs = [(k, dim) for k, dim in enumerate(along.values(), 1)]
        table = trace.take(table, 0, index, pairs)
        symbols = [*(k for k in range(len(shape)) if k not in along.values()), *symbols]
    order = sorted(range(len(symbols)), key=symbols.__getitem__)
    whole = (*shape, *(x.shape[dim] for dim in rest))
    return placed(trace, trace.transpose(table, order), sorted(symbols), whole)


def aggregated_at(
    trace: Trace, rows: View, index: View, size: int, kept: Sequence[int], agg: str
) -> View:
    """Rows aggregated at indices along a new first dimension, then those in `kept` of the index.

    Rows have the dimensions of the index first; all that come after those are last in the result.
    Where nothing is aggregated, there is the neutral element. Other aggregates than sums cost the
    number of rows times the size of the new dimension.
    """
    batch, rank = tuple(range(len(index.dims))), len(rows.dims)
    if agg == "sum":
        return trace.added_at(rows, index, size, kept)
    reads = [
        Indexed(rows, tuple(range(rank))),
        Indexed(index, batch),
        Indexed(trace.iota(size, "int64"), (rank,)),
        Indexed(trace.number(neutral(agg, rows.dtype), rows.dtype), ()),
    ]
    output = [rank, *kept, *range(len(batch), rank)]
    return trace.einsum(reads, output, "where(y == z, x, x3)", agg, rows.dtype)


@dataclass(frozen=True, slots=True)
class RowsAt:
    """Rows for indices of the dimensions `dims` of an array, taken as one.

    `shared` says which other dimensions of the array are which of the index. Rows have the
    dimensions of the index, then all others of the array.
    """

    dims: Sequence[int]
    rows: View
    index: View
    shared: Mapping[int, int]


def aggregated_into(trace: Trace, x: View, at: RowsAt, agg: str) -> View:
    """Rows aggregated at indices, in the shape of x."""
    size = prod(x.shape[dim] for dim in at.dims)
    made = aggregated_at(trace, at.rows, at.index, size, sorted(at.shared.values()), agg)
    return _laid_out(trace, x, at, made, neutral(agg, at.rows.dtype))


def put_into(trace: Trace, x: View, at: RowsAt) -> View:
    """An array with rows at indices in place of its own.

    Where an index occurs several times, the last row stays.
    """
    rows, index = at.rows, at.index
    kept, row = sorted(at.shared.values()), len(index.dims)
    gone = [k for k in range(row) if k not in kept]
    counts = [index.shape[k] for k in gone]
    places = trace.reshape(trace.iota(prod(counts), "int64"), counts)
    size = prod(x.shape[dim] for dim in at.dims)
    reads = [
        Indexed(index, tuple(range(row))),
        Indexed(places, tuple(gone)),
        Indexed(trace.iota(size, "int64"), (row,)),
    ]
    last = trace.einsum(reads, [row, *kept], "where(x == z, y, -1)", "max", "int64")
    rest = range(row, len(rows.dims))
    if rows.number is not None:
        new = trace.number(rows.number, rows.dtype, (*last.shape, *(rows.shape[k] for k in rest)))
    else:
        flat = trace.transpose(rows, [*gone, *kept, *rest])
        flat = trace.reshape(flat, (prod(counts), *flat.shape[len(gone) :]))
        pairs = [(k + 1, k + 1) for k in range(len(kept))]
        new = trace.take(flat, 0, trace.map("max(x, 0)", last), pairs)
    for _ in rest:
        last = trace.unsqueeze(last, len(last.dims))
    written = _laid_out(trace, x, at, last, -1)
    new = _laid_out(trace, x, at, new, 0)
    return trace.map("where(x >= 0, y, z)", written, new, x, dtype=x.dtype)


def _laid_out(trace: Trace, x: View, at: RowsAt, made: View, beside: Number) -> View:
    """What was made for rows of x, in the order of x's dimensions, padded with a number."""
    dims, shared = at.dims, at.shared
    of_index = sorted(shared, key=shared.__getitem__)
    order = [*dims, *of_index, *(k for k in range(len(x.dims)) if k not in {*dims, *shared})]
    made = trace.reshape(made, (*(x.shape[dim] for dim in dims), *made.shape[1:]))
    made = trace.transpose(made, [order.index(k) for k in range(len(order))])
    for dim in shared:
        lacking = x.shape[dim] - made.shape[dim]
        made = padded(trace, made, trace.number(beside, made.dtype), {dim: (0, lacking)})
    return made


def group_of(trace: Trace, ends: View, rows: int) -> View:
    """The group of each row: how many groups end at or before it."""
    reads = [Indexed(ends, (1,)), Indexed(trace.iota(rows, "int64"), (0,))]
    return trace.einsum(reads, (0,), "int64(x <= y)", "sum")


def ends_of(trace: Trace, sizes: View) -> View:
    """Where each group ends, given the sizes of groups that follow each other."""
    return running(trace, trace.cast(sizes, "int64"), 0, "sum")


def grouped_product(trace: Trace, x: View, matrices: View, group: View, dtype: object) -> View:
    """Rows times the matrix of their group; rows of no group are 0.

    Every row meets every matrix, of which one product is kept: as many times the work as there are
    groups, and no row is dropped however many a group has. It can be cut by groups.
    """
    reads = [Indexed(x, (0, 2)), Indexed(matrices, (1, 2, 3))]
    every = trace.einsum(reads, (0, 1, 3), dtype=dtype)
    groups = trace.iota(matrices.shape[0], "int64")
    reads = [Indexed(every, (0, 1, 2)), Indexed(group, (0,)), Indexed(groups, (1,))]
    return trace.einsum(reads, (0, 2), "where(y == z, x, 0)", "sum", dtype)

"""Looking elements up by their indices, and writing or aggregating them at indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from eindecomp.frontends.draft import View
from eindecomp.frontends.formulas import neutral
from eindecomp.frontends.join import Indexed
from eindecomp.frontends.operations import replaced
from eindecomp.frontends.rows_at_indices import (
    RowsAt,
    aggregated_at,
    aggregated_into,
    ends_of,
    flat_index,
    group_of,
    looked_up,
    put_into,
)
from eindecomp.frontends.torch.operators.shapes import bounds
from eindecomp.frontends.torch.registry import Number, Operation, operator
from eindecomp.lang.dtypes import BOOL, Kind, kind
from eindecomp.lang.scalar import Arg, Call, Const


@operator("aten.embedding")
def embedding(op: Operation, weight: View, indices: View, **_: Any) -> View:
    """Rows of a table."""
    op.trace.vote(weight, ("v", "a"))
    if len(indices.dims) == 2:
        op.trace.vote(indices, ("b", "s"))
    return op.trace.take(weight, 0, indices)


@operator("aten.gather")
def gather(op: Operation, x: View, dim: int, index: View, **_: Any) -> View:
    """The element at an index along a dimension, for every place of the others."""
    if not x.dims:
        return op.trace.expand(x, index.shape)
    place = dim % len(x.dims)
    for k, size in enumerate(index.shape):
        x = x if k == place else op.trace.slice(x, k, 0, size)
    return op.trace.take(x, place, index, [(k, k) for k in range(len(x.dims)) if k != place])


def from_end(op: Operation, index: View, size: int) -> View:
    """Indices that count from the end if they are negative."""
    return op.trace.map(f"where(x < 0, x + {size}, x)", op.trace.cast(index, "int64"))


@operator("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(op: Operation, x: View, indices: Sequence[View | None]) -> View:
    """What lies at indices of several dimensions at once, which they align."""
    at = {k: i for k, i in enumerate(indices) if i is not None}
    if any(i.dtype == BOOL for i in at.values()):
        raise op.refuse("selects by a mask: how many elements come out depends on the data")
    dims = [*at]
    rank = max(len(i.dims) for i in at.values())
    together = op.shape[dims[0] : dims[0] + rank]
    adjacent = dims == [*range(dims[0], dims[0] + len(dims))]
    shape = together if adjacent else op.shape[:rank]
    made = looked_up(op.trace, x, {k: from_end(op, i, x.shape[k]) for k, i in at.items()}, shape)
    if not adjacent or not dims[0]:
        return made
    order = [*range(rank, rank + dims[0]), *range(rank), *range(rank + dims[0], len(made.dims))]
    return op.trace.transpose(made, order)


def _along(op: Operation, x: View, dim: int, index: View, src: View) -> RowsAt:
    """Elements for indices along a dimension of x, at the same places of the others."""
    for k, size in enumerate(index.shape):
        src = op.trace.slice(src, k, 0, size)
    place = dim % len(x.dims)
    return RowsAt([place], src, index, {k: k for k in range(len(x.dims)) if k != place})


@operator("aten.scatter")
def scatter(
    op: Operation, x: View, dim: int, index: View, src: View | None = None, value: Number = 0
) -> View:
    """Elements written at indices along a dimension."""
    given = op.trace.number(value, op.dtype, index.shape) if src is None else src
    return put_into(op.trace, x, _along(op, x, dim, index, given))


@operator("aten.index_put", "aten._unsafe_index_put")
def index_put(
    op: Operation, x: View, indices: Sequence[View | None], values: View, accumulate: bool = False
) -> View:
    """Elements written, or added, at indices of several dimensions at once."""
    at = {k: i for k, i in enumerate(indices) if i is not None}
    dims = [*at]
    if at[dims[0]].dtype == BOOL:
        return _put_where(op, x, [*at.values()], values, accumulate, dims)
    ends = [from_end(op, own, x.shape[k]) for k, own in at.items()]
    index = flat_index(op.trace, ends, [x.shape[k] for k in dims])
    rest = [x.shape[k] for k in range(len(x.dims)) if k not in at]
    adjacent = dims == [*range(dims[0], dims[0] + len(dims))]
    before = dims[0] if adjacent else 0  # dimensions that values have before those of the indices
    rows = op.trace.expand(values, (*rest[:before], *index.shape, *rest[before:]))
    after = before + len(index.shape)
    order = [*range(before, after), *range(before), *range(after, len(rows.dims))]
    rows = op.trace.cast(op.trace.transpose(rows, order), op.dtype)
    if not accumulate:
        return put_into(op.trace, x, RowsAt(dims, rows, index, {}))
    summed = aggregated_into(op.trace, x, RowsAt(dims, rows, index, {}), "sum")
    return op.trace.map("x + y", x, summed, dtype=op.dtype)


def _put_where(
    op: Operation, x: View, masks: Sequence[View], values: View, accumulate: bool, at: list[int]
) -> View:
    if len(masks) > 1 or at != [0] or prod(values.shape) != 1 or accumulate:
        raise op.refuse("with a mask is imported for one number that is written where it holds")
    mask = masks[0]
    for _ in range(len(x.dims) - len(mask.dims)):
        mask = op.trace.unsqueeze(mask, len(mask.dims))
    return op.trace.map("where(y, z, x)", x, mask, op.trace.reshape(values, ()), dtype=op.dtype)


@operator("aten.slice_scatter")
def slice_scatter(
    op: Operation,
    x: View,
    src: View,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> View:
    """A range along a dimension written over."""
    place = dim % len(x.dims)
    low, high = bounds(x, place, start, end)
    shape = (*x.shape[:place], len(range(low, high, step)), *x.shape[place + 1 :])
    part = op.trace.expand(op.trace.cast(src, op.dtype), shape)
    return replaced(op.trace, x, part, {place: (low, step)}) if high > low else x


@operator("aten.masked_scatter", "aten.nonzero", "aten.masked_select", "aten.unique")
def refused(op: Operation, **_: Any) -> View:
    """What no graph of fixed shapes computes."""
    raise op.refuse("moves elements to places that depend on the data")


_JOINS = {"sum": "x + y", "prod": "x * y", "amax": "max(x, y)", "amin": "min(x, y)"}


@operator("aten.scatter_reduce", "aten.scatter_add")
def scatter_reduce(
    op: Operation,
    x: View,
    dim: int,
    index: View,
    src: View,
    reduce: str = "sum",
    include_self: bool = True,
) -> View:
    """Elements aggregated at indices along a dimension, together with what is there or not."""
    ones = op.trace.number(1, "int64", index.shape)
    count = aggregated_into(op.trace, x, _along(op, x, dim, index, ones), "sum")
    agg = "sum" if reduce == "mean" else reduce.removeprefix("a")
    made = aggregated_into(op.trace, x, _along(op, x, dim, index, src), agg)
    if reduce == "mean":
        if kind(op.dtype) is Kind.INT:
            raise op.refuse("is imported for means of fractions, not of whole numbers")
        mean = "(x + y) / (z + 1)" if include_self else "where(z > 0, y / z, x)"
        return op.trace.map(mean, x, made, count, dtype=op.dtype)
    if include_self:
        return op.trace.map(_JOINS[reduce], x, made, dtype=op.dtype)
    return op.trace.map("where(z > 0, y, x)", x, made, count, dtype=op.dtype)


@operator("aten.embedding_bag", "aten._embedding_bag", "aten._embedding_bag_forward_only")
def embedding_bag(
    op: Operation,
    weight: View,
    indices: View,
    offsets: View,
    mode: int = 0,
    per_sample_weights: View | None = None,
    padding_idx: int | None = None,
    **_: Any,
) -> list[View]:
    """Sums, means or the largest of rows of a table, bag by bag; an empty bag is 0."""
    trace, agg = op.trace, "max" if mode == 2 else "sum"
    rows = trace.take(weight, 0, indices)
    if per_sample_weights is not None:
        rows = trace.map("x * y", rows, trace.unsqueeze(per_sample_weights, 1))
    ones = trace.number(1, "int64", indices.shape)
    if padding_idx is not None and padding_idx >= 0:
        ones = trace.map(f"int64(x != {padding_idx})", indices)
        nothing = trace.number(neutral(agg, rows.dtype), rows.dtype)
        rows = trace.map("where(y > 0, x, z)", rows, trace.unsqueeze(ones, 1), nothing)
    made = trace.cast(_by_bag(op, rows, offsets, agg), op.dtype)
    if mode == 0:
        return [made]
    count = trace.unsqueeze(_by_bag(op, ones, offsets, "sum"), 1)
    finish = "x / max(y, 1)" if mode == 1 else "where(y > 0, x, 0)"
    return [trace.map(finish, made, count, dtype=op.dtype)]


def _by_bag(op: Operation, rows: View, offsets: View, agg: str) -> View:
    """Rows aggregated by the bags that begin at offsets, simply where all are of one size."""
    trace, bags, size = op.trace, op.shape[0], rows.shape[0] // op.shape[0]
    match trace.formula(offsets):
        case Call("mul", (Arg(0), Const(step))) if step == size and bags * size == rows.shape[0]:
            return trace.reduce(trace.reshape(rows, (bags, size, *rows.shape[1:])), [1], agg)
        case _:
            bag = group_of(trace, trace.slice(offsets, 0, 1, bags), rows.shape[0])
    return aggregated_at(trace, rows, bag, bags, (), agg)


@operator("aten.repeat_interleave.Tensor")
def repeated_places(op: Operation, repeats: View, **_: Any) -> View:
    """Every place as often as is given for it."""
    return group_of(op.trace, ends_of(op.trace, repeats), op.shape[0])


@operator("aten.histc")
def histc(op: Operation, x: View, bins: int = 100, min_: Number = 0, max_: Number = 0) -> View:
    """How many elements are in each of equal ranges; the last one has its end too."""
    if min_ == max_:
        raise op.refuse("is imported where min and max are given: the data would decide them")
    low, span = float(min_.real), float(max_.real) - float(min_.real)
    place = f"min((x - ({low!r})) * {bins!r} / ({span!r}) // 1, {bins - 1})"
    inside = f"x >= {low!r} and x <= {low + span!r}"
    rank = len(x.dims)
    reads = [Indexed(x, tuple(range(rank))), Indexed(op.trace.iota(bins, "int64"), (rank,))]
    return op.trace.einsum(reads, (rank,), f"int64({inside} and {place} == y)", "sum", op.dtype)

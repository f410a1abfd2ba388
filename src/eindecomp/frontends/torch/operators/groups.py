"""Rows in groups: aggregates at indices, bags, repetitions, histograms, products by group."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from eindecomp.frontends.formulas import neutral
from eindecomp.frontends.join import Read
from eindecomp.frontends.operations.groups import combined_at, ends_of, group_of, grouped_product
from eindecomp.frontends.torch.operators.scattering import padded_beside, summed_at
from eindecomp.frontends.torch.registry import operator
from eindecomp.lang.dtypes import Kind, kind
from eindecomp.lang.scalar import Arg, Call, Const

if TYPE_CHECKING:
    from eindecomp.frontends.torch.registry import Number, Operation
    from eindecomp.frontends.views import View

_JOINS = {"sum": "x + y", "prod": "x * y", "amax": "max(x, y)", "amin": "min(x, y)"}


@operator("aten.scatter_reduce")
def scatter_reduce(
    op: Operation, x: View, dim: int, index: View, src: View, reduce: str, include_self: bool = True
) -> View:
    """Elements aggregated at indices along a dimension, together with what is there or not."""
    place = dim % len(x.dims)
    count = summed_at(op, x, place, index, op.trace.number(1, "int64", index.shape))
    if reduce in ("sum", "mean"):
        made = summed_at(op, x, place, index, src)
    else:
        made = _extreme(op, x, place, index, src, reduce.removeprefix("a"))
    if reduce == "mean":
        if kind(op.dtype) is Kind.INT:
            raise op.refuse("is imported for means of fractions, not of whole numbers")
        mean = "(x + y) / (z + 1)" if include_self else "where(z > 0, y / z, x)"
        return op.trace.map(mean, x, made, count, dtype=op.dtype)
    if include_self:
        return op.trace.map(_JOINS[reduce], x, made, dtype=op.dtype)
    return op.trace.map("where(z > 0, y, x)", x, made, count, dtype=op.dtype)


def _extreme(op: Operation, x: View, place: int, index: View, src: View, agg: str) -> View:
    every = tuple(range(len(x.dims)))
    for k, size in enumerate(index.shape):
        src = op.trace.slice(src, k, 0, size)
    output = [len(every) if k == place else k for k in every]
    made = combined_at(op.trace, src, Read(index, every), x.shape[place], output, agg)
    return padded_beside(op, x, place, made, neutral(agg, x.dtype))


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
            apart = trace.reshape(rows, (bags, size, *rows.shape[1:]))
            return trace.reduce(apart, [1], agg)
        case _:
            bag = group_of(trace, trace.slice(offsets, 0, 1, bags), rows.shape[0])
    if agg == "sum":
        return trace.scatter_add(rows, bag, 0, bags, [(0, 0)])
    return combined_at(trace, rows, Read(bag, (0,)), bags, (2, 1), agg)


@operator("aten.repeat_interleave.self_Tensor")
def repeat_rows(op: Operation, x: View, repeats: View, dim: int | None = None, **_: Any) -> View:
    """Every row as often as is given for it; how many that are in all is known."""
    if dim is None:
        x, dim = op.trace.reshape(x, (prod(x.shape),)), 0
    place = dim % len(x.dims)
    times = op.trace.expand(repeats, (x.shape[place],))
    row = group_of(op.trace, ends_of(op.trace, times), op.shape[place])
    return op.trace.take(x, place, row)


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
    reads = [Read(x, tuple(range(rank))), Read(op.trace.iota(bins, "int64"), (rank,))]
    return op.trace.einsum(reads, (rank,), f"int64({inside} and {place} == y)", "sum", op.dtype)


@operator("aten._grouped_mm")
def grouped_mm(op: Operation, x: View, mat2: View, offs: View | None = None, **_: Any) -> View:
    """Rows times the matrix of their group, by where the groups of rows end."""
    if offs is None or len(x.dims) != 2 or len(mat2.dims) != 3:
        raise op.refuse("is imported for groups of rows: a matrix, matrices and where groups end")
    group = group_of(op.trace, offs, x.shape[0])
    return grouped_product(op.trace, x, mat2, group, op.dtype)

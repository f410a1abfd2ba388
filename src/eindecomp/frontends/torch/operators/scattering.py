"""Writing elements to places that are given by indices."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from eindecomp.frontends.torch.operators.indexing import flat_index, from_end
from eindecomp.frontends.torch.operators.shapes import bounds
from eindecomp.frontends.torch.registry import operator
from eindecomp.lang.dtypes import BOOL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.torch.registry import Number, Operation
    from eindecomp.frontends.views import View


def summed_at(op: Operation, x: View, place: int, index: View, source: View) -> View:
    """Elements summed at indices along a dimension, in a tensor of the shape of x."""
    for k, size in enumerate(index.shape):
        source = op.trace.slice(source, k, 0, size)
    every = [(k, k) for k in range(len(x.dims))]
    kept = [k for k in range(len(x.dims)) if k != place]
    found = op.trace.scatter_add(source, index, place, x.shape[place], every, kept)
    return padded_beside(op, x, place, found, 0)


def padded_beside(op: Operation, x: View, place: int, found: View, value: Number) -> View:
    """A tensor made as large as x by a number, where indices reach only a part of it."""
    for k in range(len(x.dims)):
        lacking = x.shape[k] - found.shape[k]
        if k != place and lacking > 0:
            shape = (*found.shape[:k], lacking, *found.shape[k + 1 :])
            found = op.trace.concat([found, op.trace.number(value, found.dtype, shape)], k)
    return found


@operator("aten.scatter_add")
def scatter_add(op: Operation, x: View, dim: int, index: View, src: View) -> View:
    """Elements added at indices along a dimension."""
    place = dim % len(x.dims)
    return op.trace.map("x + y", x, summed_at(op, x, place, index, src), dtype=op.dtype)


@operator("aten.scatter")
def scatter(
    op: Operation,
    x: View,
    dim: int,
    index: View,
    src: View | None = None,
    value: Number | None = None,
) -> View:
    """Elements written at indices along a dimension; each place is written at most once."""
    place = dim % len(x.dims)
    ones = op.trace.number(1, "int64", index.shape)
    count = summed_at(op, x, place, index, ones)
    new = op.array(value or 0, op.dtype) if src is None else summed_at(op, x, place, index, src)
    return op.trace.map("where(y > 0, z, x)", x, count, new, dtype=op.dtype)


@operator("aten.index_add")
def index_add(
    op: Operation, x: View, dim: int, index: View, source: View, alpha: Number = 1
) -> View:
    """Rows added at indices along a dimension."""
    place = dim % len(x.dims)
    found = op.trace.scatter_add(source, index, place, x.shape[place], [(place, 0)])
    return op.trace.map(f"x + y * ({alpha})", x, found, dtype=op.dtype)


@operator("aten.index_copy")
def index_copy(op: Operation, x: View, dim: int, index: View, source: View) -> View:
    """Rows written at indices along a dimension; each is written at most once."""
    place = dim % len(x.dims)
    size = x.shape[place]
    found = op.trace.scatter_add(source, index, place, size, [(place, 0)])
    return _written(op, x, place, index, found)


def _written(op: Operation, x: View, place: int, index: View, found: View) -> View:
    """Rows in the place of those of x at indices."""
    ones = op.trace.number(1, "int64", index.shape)
    count = op.trace.scatter_add(ones, index, 0, x.shape[place], [(0, 0)])
    for _ in range(len(x.dims) - 1 - place):
        count = op.trace.unsqueeze(count, len(count.dims))
    return op.trace.map("where(y > 0, z, x)", x, count, found, dtype=op.dtype)


@operator("aten.index_fill")
def index_fill(op: Operation, x: View, dim: int, index: View, value: Number | View) -> View:
    """A number at indices along a dimension."""
    place = dim % len(x.dims)
    return _written(op, x, place, from_end(op, index, x.shape[place]), op.array(value, op.dtype))


@operator("aten.index_put", "aten._unsafe_index_put")
def index_put(
    op: Operation,
    x: View,
    indices: Sequence[View | None],
    values: View,
    accumulate: bool = False,
) -> View:
    """Elements written, or added, at indices of several dimensions at once."""
    at = [k for k, i in enumerate(indices) if i is not None]
    given = [i for i in indices if i is not None]
    if given[0].dtype == BOOL:
        return _put_where(op, x, given, values, accumulate, at)
    first = [*at, *(k for k in range(len(x.dims)) if k not in at)]
    x = op.trace.transpose(x, first)
    sizes, rest = x.shape[: len(at)], x.shape[len(at) :]
    index = flat_index(op, given, sizes)
    adjacent = at == [*range(at[0], at[0] + len(at))]
    before = at[0] if adjacent else 0  # dimensions that values have before those of the indices
    rows = op.trace.expand(values, (*rest[:before], *index.shape, *rest[before:]))
    after = before + len(index.shape)
    order = [*range(before, after), *range(before), *range(after, len(rows.dims))]
    rows = op.trace.transpose(rows, order)
    table = op.trace.reshape(x, (prod(sizes), *rest))
    count = prod(index.shape)
    source = op.trace.cast(op.trace.reshape(rows, (count, *rest)), op.dtype)
    flat = op.trace.reshape(index, (count,))
    found = op.trace.scatter_add(source, flat, 0, prod(sizes), [(0, 0)])
    if accumulate:
        made = op.trace.map("x + y", table, found, dtype=op.dtype)
    else:
        made = _written(op, table, 0, flat, found)
    return op.trace.transpose(
        op.trace.reshape(made, x.shape), [first.index(k) for k in range(len(first))]
    )


def _put_where(
    op: Operation, x: View, masks: Sequence[View], values: View, accumulate: bool, at: list[int]
) -> View:
    if len(masks) > 1 or at != [0] or prod(values.shape) != 1 or accumulate:
        raise op.refuse("with a mask is imported for one number that is written where it holds")
    mask = masks[0]
    for _ in range(len(x.dims) - len(mask.dims)):
        mask = op.trace.unsqueeze(mask, len(mask.dims))
    value = op.trace.reshape(values, ())
    return op.trace.map("where(y, z, x)", x, mask, value, dtype=op.dtype)


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
    if step != 1:
        every = op.trace.iota(len(range(low, high, step)), "int64", low, step)
        return index_copy(op, x, place, every, op.trace.cast(src, op.dtype))
    shape = (*x.shape[:place], high - low, *x.shape[place + 1 :])
    parts = [
        op.trace.slice(x, place, 0, low),
        op.trace.expand(op.trace.cast(src, op.dtype), shape),
        op.trace.slice(x, place, high, x.shape[place]),
    ]
    return op.trace.concat([part for part in parts if part.shape[place]], place)


@operator("aten.select_scatter")
def select_scatter(op: Operation, x: View, src: View, dim: int, index: int) -> View:
    """What lies at one index written over."""
    place = dim % len(x.dims)
    at = index % x.shape[place]
    return slice_scatter(op, x, op.trace.unsqueeze(src, place), place, at, at + 1)


@operator("aten.masked_scatter", "aten.nonzero", "aten.masked_select", "aten.unique")
def refused(op: Operation, **_: Any) -> View:
    """What no graph of fixed shapes computes."""
    raise op.refuse("moves elements to places that depend on the data")

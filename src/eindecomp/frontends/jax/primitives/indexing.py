"""`gather` and `scatter` in all forms: rows at indices, windows at starts, and both at once."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from eindecomp.frontends.draft import View
from eindecomp.frontends.formulas import neutral
from eindecomp.frontends.jax.primitives.shapes import clamped, put
from eindecomp.frontends.jax.registry import Equation, primitive
from eindecomp.frontends.rows_at_indices import (
    RowsAt,
    aggregated_into,
    counts_along,
    flat_index,
    looked_up,
    put_into,
)


@primitive("gather")
def _gather(op: Equation, x: View, indices: View) -> View:
    trace, numbers = op.trace, op.params["dimension_numbers"]
    sizes = [int(size) for size in op.params["slice_sizes"]]
    batch = indices.shape[:-1]
    shared = dict(
        zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    )
    dims = [int(dim) for dim in numbers.start_index_map]
    _vote(op, x, indices, dims)
    starts: dict[int, View] = {}
    for dim, index in zip(dims, columns(op, indices), strict=True):
        last, clip = x.shape[dim] - sizes[dim], _is_clip(op)
        if not last and sizes[dim] > 1:
            continue  # a window as long as the dimension starts at 0
        if index.number is None:
            starts[dim] = clamped(op, index, last) if clip else index
            continue
        at = int(index.number.real)
        if not clip and not 0 <= at <= last:
            op.refuse(f"index {at} is out of range for a dimension of {x.shape[dim]}")
        at = min(max(at, 0), last)
        x = trace.slice(x, dim, at, at + sizes[dim])
    for dim, size in enumerate(sizes):
        if dim not in starts and dim not in shared:
            x = trace.slice(x, dim, 0, size)
    windows = [dim for dim in starts if sizes[dim] > 1]
    for dim, index in starts.items():
        wide = trace.reshape(index, (*batch, *(1 for _ in windows)))
        if dim in windows:
            inner = len(windows) - windows.index(dim) - 1
            inside = trace.reshape(trace.iota(sizes[dim], "int64"), (sizes[dim], *(1,) * inner))
            wide = trace.map("x + y", wide, inside)
        starts[dim] = wide
    made = looked_up(trace, x, starts, (*batch, *(sizes[dim] for dim in windows)), shared)
    rest = [k for k in range(len(x.dims)) if k not in starts and k not in shared]
    axes = [*(DimOf(True, k) for k in range(len(batch)))]
    axes += [DimOf(False, dim) for dim in (*windows, *rest)]
    gone = {*numbers.collapsed_slice_dims, *shared}
    kept = iter(DimOf(False, k) for k in range(len(x.dims)) if k not in gone)
    places = iter(range(len(batch)))
    wanted = [
        next(kept) if k in numbers.offset_dims else DimOf(True, next(places))
        for k in range(len(op.shape))
    ]
    return trace.expand(arranged(op, made, axes, wanted), op.shape)


def _vote(op: Equation, x: View, indices: View, dims: list[int]) -> None:
    """Suggest names for the rows of a table: the vocabulary of an embedding."""
    if len(x.dims) == 2 and dims == [0]:
        op.trace.vote(x, ["v", "a"])
        own = ["b", "s"] if len(indices.dims) == 3 else ["s"] if len(indices.dims) == 2 else []
        if own:
            op.trace.vote(indices, [*own, None])


class DimOf(NamedTuple):
    """A dimension of a result or an update: a place of the operand, or of the indices."""

    of_indices: bool
    place: int


def columns(op: Equation, indices: View) -> list[View]:
    """The columns of an array of indices: the parts that it was concatenated from, if it was."""
    last = len(indices.dims) - 1
    place, parts = op.pieces.get(indices, (None, ()))
    if place == last and all(part.shape[last] == 1 for part in parts):
        return [op.trace.squeeze(part, [last]) for part in parts]
    return [op.trace.index(indices, last, k) for k in range(indices.shape[last])]


def arranged(op: Equation, array: View, axes: list[DimOf], wanted: list[DimOf]) -> View:
    """An array with its dimensions in the order wanted, without others, which have size 1."""
    gone = [k for k, axis in enumerate(axes) if axis not in wanted]
    array = op.trace.squeeze(array, gone)
    left = [axis for axis in axes if axis in wanted]
    for axis in wanted:
        if axis not in left:
            left.append(axis)
            array = op.trace.unsqueeze(array, len(array.dims))
    return op.trace.transpose(array, [left.index(axis) for axis in wanted])


class _Way(NamedTuple):
    """How rows are combined with what is there."""

    join: str
    agg: str


_OFFICIAL = {
    "scatter-add": _Way("x + y", "sum"),
    "scatter-sub": _Way("x - y", "sum"),
    "scatter-mul": _Way("x * y", "prod"),
    "scatter-max": _Way("max(x, y)", "max"),
    "scatter-min": _Way("min(x, y)", "min"),
    "scatter": _Way("y", ""),
}
_WAYS = _OFFICIAL | {name.replace("-", "_"): way for name, way in _OFFICIAL.items()}


@primitive(*_WAYS)
def _scatter(op: Equation, x: View, indices: View, updates: View) -> View:
    way, function = _WAYS[op.name], op.params["update_jaxpr"]
    if not way.agg and function is not None and function.outvars[0] is not function.invars[1]:
        op.refuse(
            "it applies a function to elements at indices, once for every time that an index "
            "occurs; where indices differ, x.at[i].set(f(x[i])) is the same and is imported"
        )
    numbers = op.params["dimension_numbers"]
    inserted = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    window = iter(k for k in range(len(x.dims)) if k not in inserted)
    places = iter(range(len(indices.dims) - 1))
    axes = [
        DimOf(False, next(window)) if k in numbers.update_window_dims else DimOf(True, next(places))
        for k in range(len(updates.dims))
    ]
    sizes = {a.place: updates.shape[k] for k, a in enumerate(axes) if not a.of_indices}
    starts = dict(
        zip(map(int, numbers.scatter_dims_to_operand_dims), columns(op, indices), strict=True)
    )
    starts = {d: i for d, i in starts.items() if sizes.get(d, 1) < x.shape[d] or x.shape[d] == 1}
    starts |= {
        d: op.trace.number(0, "int64")
        for d, n in sizes.items()
        if d not in starts and n < x.shape[d]
    }
    if prod(indices.shape[:-1]) == 1 and not numbers.operand_batching_dims:
        return _put_window(way, op, x, updates, axes, starts)
    if any(sizes.get(d, 1) > 1 for d in starts):
        op.refuse(
            "it scatters windows at several starts along a dimension of which they are a part"
        )
    shared = dict(
        zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
    )
    return _put_rows(way, op, x, updates, axes, starts, shared)


def _is_clip(op: Equation) -> bool:
    return "CLIP" in str(op.params["mode"])


def _put_window(
    way: _Way, op: Equation, x: View, updates: View, axes: list[DimOf], starts: dict[int, View]
) -> View:
    """One window, at one start."""
    whole = [DimOf(False, k) for k in range(len(x.dims))]
    window = arranged(op, updates, axes, whole)
    starts = {d: op.trace.reshape(i, ()) for d, i in starts.items()}
    starts = {d: i for d, i in starts.items() if x.shape[d] != window.shape[d]}
    clip = _is_clip(op)
    if not way.agg:
        return put(op, x, window, starts, clamp=clip)
    beside = op.trace.number(neutral(way.agg, x.dtype), x.dtype, x.shape)
    return op.map(way.join, x, put(op, beside, window, starts, clamp=clip))


def _put_rows(
    way: _Way,
    op: Equation,
    x: View,
    updates: View,
    axes: list[DimOf],
    starts: dict[int, View],
    shared: dict[int, int],
) -> View:
    """Rows, each at an index."""
    for dim, index in list(starts.items()):
        along = counts_along(op.trace, index)
        whole = along is not None and index.shape[along] == x.shape[dim]
        if along is not None and whole and along not in shared.values() and len(starts) > 1:
            shared[dim] = along
            del starts[dim]
    dims = sorted(starts)
    own = [clamped(op, starts[d], x.shape[d] - 1) if _is_clip(op) else starts[d] for d in dims]
    index = flat_index(op.trace, own, [x.shape[d] for d in dims])
    # Put the dimensions of the indices first, then what a row consists of.
    window = sorted(axis for axis in axes if not axis.of_indices and axis.place not in dims)
    rows = arranged(op, updates, axes, [*(DimOf(True, k) for k in range(len(index.dims))), *window])
    at = RowsAt(dims, rows, index, shared)
    if not way.agg:
        return put_into(op.trace, x, at)
    made = aggregated_into(op.trace, x, at, way.agg)
    return made if way.join == "x + y" and x.number == 0 else op.map(way.join, x, made)

"""The same elements in other shapes and places: ranges, windows, `gather` and `scatter`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from math import prod
from typing import NamedTuple

from eindecomp.frontends import operations, rows_at_indices
from eindecomp.frontends.draft import View
from eindecomp.frontends.formulas import neutral
from eindecomp.frontends.jax.registry import Equation, primitive


@primitive("broadcast_in_dim")
def _broadcast_in_dim(op: Equation, x: View, *_: View) -> View:
    return operations.placed(op.trace, x, op.params["broadcast_dimensions"], op.shape)


@primitive("reshape")
def _reshape(op: Equation, x: View, *_: View) -> View:
    order = op.params.get("dimensions")
    x = x if order is None else op.trace.transpose(x, [int(k) for k in order])
    return op.trace.reshape(x, op.shape)


@primitive("transpose")
def _transpose(op: Equation, x: View) -> View:
    return op.trace.transpose(x, [int(k) for k in op.params["permutation"]])


@primitive("squeeze")
def _squeeze(op: Equation, x: View) -> View:
    return op.trace.squeeze(x, [int(k) % len(x.dims) for k in op.params["dimensions"]])


@primitive("iota")
def _iota(op: Equation, *_: View) -> View:
    place = int(op.params["dimension"])
    return operations.placed(op.trace, op.trace.iota(op.shape[place], op.dtype), [place], op.shape)


@primitive("empty", "empty2")
def _empty(op: Equation, *_: View) -> View:
    return op.trace.number(0, op.dtype, op.shape)


@primitive("slice")
def _slice(op: Equation, x: View) -> View:
    starts, stops = op.params["start_indices"], op.params["limit_indices"]
    steps = op.params["strides"] or (1,) * len(starts)
    for place, (start, stop, step) in enumerate(zip(starts, stops, steps, strict=True)):
        x = op.trace.slice(x, place, int(start), int(stop), int(step))
    return x


@primitive("rev")
def _rev(op: Equation, x: View) -> View:
    return operations.reversed_along(op.trace, x, [int(place) for place in op.params["dimensions"]])


@primitive("concatenate")
def _concatenate(op: Equation, *arrays: View) -> View:
    place = int(op.params["dimension"])
    filled = [array for array in arrays if array.shape[place]]
    made = op.trace.concat(filled or arrays[:1], place)
    op.pieces[made] = (place, tuple(filled))
    return made


@primitive("split")
def _split(op: Equation, x: View) -> list[View]:
    return operations.cut_apart(op.trace, x, op.params["axis"], op.params["sizes"])


@primitive("stack")
def _stack(op: Equation, *arrays: View) -> View:
    return operations.stacked(op.trace, arrays, int(op.params.get("axis", 0)))


@primitive("tile")
def _tile(op: Equation, x: View) -> View:
    shape = [n for pair in zip(op.params["reps"], x.shape, strict=True) for n in pair]
    wide = [n if k % 2 else 1 for k, n in enumerate(shape)]
    return op.trace.reshape(op.trace.expand(op.trace.reshape(x, wide), shape), op.shape)


@primitive("pad")
def _pad(op: Equation, x: View, value: View) -> View:
    ends: Sequence[tuple[int, int, int]] = op.params["padding_config"]
    return operations.padded(op.trace, x, value, dict(enumerate(ends)))


@primitive("dynamic_slice")
def _dynamic_slice(op: Equation, x: View, *starts: View) -> View:
    for place, (start, size) in enumerate(zip(starts, op.params["slice_sizes"], strict=True)):
        if last := x.shape[place] - int(size):
            rows = op.trace.iota(int(size), "int64")
            rows = op.trace.map("x + y", rows, clamped(op, start, last))
            x = op.trace.take(x, place, rows)
    return x


def clamped(op: Equation, index: View, last: int) -> View:
    """An index that is 0 at least and `last` at most."""
    low, high = op.trace.number(0, "int64"), op.trace.number(last, "int64")
    return op.trace.map("min(max(x, y), z)", op.trace.cast(index, "int64"), low, high)


@primitive("dynamic_update_slice")
def _dynamic_update_slice(op: Equation, x: View, update: View, *starts: View) -> View:
    places = [k for k, size in enumerate(update.shape) if size != x.shape[k]]
    return put(op, x, update, {place: starts[place] for place in places})


def put(op: Equation, x: View, part: View, starts: dict[int, View], *, clamp: bool = True) -> View:
    """An array with the window that starts at given indices replaced.

    Starts are clamped so that the window fits, or else windows that do not fit are dropped.
    """
    if not starts:
        return part
    lasts = {place: x.shape[place] - part.shape[place] for place in starts}
    known = {k: int(i.number.real) for k, i in starts.items() if i.number is not None}
    if len(known) == len(starts):
        if not clamp and any(not 0 <= at <= lasts[k] for k, at in known.items()):
            return x
        at = {k: (min(max(start, 0), lasts[k]), 1) for k, start in known.items()}
        return operations.replaced(op.trace, x, part, at)
    masks: list[View] = []
    for place, start in starts.items():
        at = clamped(op, start, lasts[place]) if clamp else op.trace.cast(start, "int64")
        offset = op.trace.map("x - y", op.trace.iota(x.shape[place], "int64"), at)
        size = op.trace.number(part.shape[place], "int64")
        within = op.trace.map("x >= 0 and x < y", offset, size)
        if not clamp and part.shape[place] > 1:
            fits = op.trace.map("x >= 0 and x <= y", at, op.trace.number(lasts[place], "int64"))
            within = op.trace.map("x and y", within, fits)
        for _ in range(len(x.dims) - place - 1):
            within = op.trace.unsqueeze(within, len(within.dims))
        masks.append(within)
        if part.shape[place] == 1:
            continue
        part = op.trace.take(part, place, op.trace.map("min(max(x, 0), y - 1)", offset, size))
    return op.map("where(x, y, z)", reduce(partial(op.trace.map, "x and y"), masks), part, x)


# `gather` and `scatter` in all forms: rows at indices, windows at starts, and both at once


@primitive("gather")
def _gather(op: Equation, x: View, indices: View) -> View:
    trace, dnums = op.trace, op.params["dimension_numbers"]
    sizes = [int(size) for size in op.params["slice_sizes"]]
    batch = indices.shape[:-1]
    shared = dict(zip(dnums.operand_batching_dims, dnums.start_indices_batching_dims, strict=True))
    dims = [int(dim) for dim in dnums.start_index_map]
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
    made = rows_at_indices.looked_up(
        trace, x, starts, (*batch, *(sizes[dim] for dim in windows)), shared
    )
    rest = [k for k in range(len(x.dims)) if k not in starts and k not in shared]
    axes = [*(DimOf(True, k) for k in range(len(batch)))]
    axes += [DimOf(False, dim) for dim in (*windows, *rest)]
    gone = {*dnums.collapsed_slice_dims, *shared}
    kept = iter(DimOf(False, k) for k in range(len(x.dims)) if k not in gone)
    places = iter(range(len(batch)))
    wanted = [
        next(kept) if k in dnums.offset_dims else DimOf(True, next(places))
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
    array = op.trace.squeeze(array, [k for k, axis in enumerate(axes) if axis not in wanted])
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


_WAYS = {
    "scatter-add": _Way("x + y", "sum"),
    "scatter-sub": _Way("x - y", "sum"),
    "scatter-mul": _Way("x * y", "prod"),
    "scatter-max": _Way("max(x, y)", "max"),
    "scatter-min": _Way("min(x, y)", "min"),
    "scatter": _Way("y", ""),
}


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
    starts = dict(zip(numbers.scatter_dims_to_operand_dims, columns(op, indices), strict=True))
    starts = {d: i for d, i in starts.items() if sizes.get(d, 1) < x.shape[d] or x.shape[d] == 1}
    starts |= {
        d: op.trace.number(0, "int64")
        for d, n in sizes.items()
        if d not in starts and n < x.shape[d]
    }
    if prod(indices.shape[:-1]) == 1 and not numbers.operand_batching_dims:
        return _put_window(way, op, x, updates, axes, starts)
    if any(sizes.get(d, 1) > 1 for d in starts):
        op.refuse("it scatters windows at several starts along a dimension of which they are part")
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
    window = arranged(op, updates, axes, [DimOf(False, k) for k in range(len(x.dims))])
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
        along = rows_at_indices.counts_along(op.trace, index)
        whole = along is not None and index.shape[along] == x.shape[dim]
        if along is not None and whole and along not in shared.values() and len(starts) > 1:
            shared[dim] = along
            del starts[dim]
    dims = sorted(starts)
    own = [clamped(op, starts[d], x.shape[d] - 1) if _is_clip(op) else starts[d] for d in dims]
    index = rows_at_indices.flat_index(op.trace, own, [x.shape[d] for d in dims])
    # Put the dimensions of the indices first, then what a row consists of.
    window = sorted(axis for axis in axes if not axis.of_indices and axis.place not in dims)
    rows = arranged(op, updates, axes, [*(DimOf(True, k) for k in range(len(index.dims))), *window])
    at = rows_at_indices.RowsAt(dims, rows, index, shared)
    if not way.agg:
        return rows_at_indices.put_into(op.trace, x, at)
    made = rows_at_indices.aggregated_into(op.trace, x, at, way.agg)
    return made if way.join == "x + y" and x.number == 0 else op.map(way.join, x, made)

"""`scatter` and its kin: rows put, added, multiplied or compared into an array at indices."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from eindecomp.frontends.formulas import neutral
from eindecomp.frontends.jax.primitives.lookups import Axis, arranged, columns
from eindecomp.frontends.jax.primitives.shapes import clamped, put
from eindecomp.frontends.jax.registry import Equation, primitive
from eindecomp.frontends.join import Read
from eindecomp.frontends.operations import combined_at, counts_along, flat_index

if TYPE_CHECKING:
    from eindecomp.frontends.views import View


@dataclass(frozen=True, slots=True)
class _Way:
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


@primitive(*_WAYS, *(name.replace("-", "_") for name in _WAYS))
def _scatter(op: Equation, x: View, indices: View, updates: View) -> View:
    way = _WAYS[op.name.replace("_", "-")]
    if not way.agg and not _puts_updates(op):
        op.refuse(
            "it applies a function to elements at indices, once for every time that an index "
            "occurs; where indices differ, x.at[i].set(f(x[i])) is the same and is imported"
        )
    numbers = op.params["dimension_numbers"]
    inserted = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    window = iter(k for k in range(len(x.dims)) if k not in inserted)
    places = iter(range(len(indices.dims) - 1))
    axes = [
        Axis(False, next(window)) if k in numbers.update_window_dims else Axis(True, next(places))
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


def _puts_updates(op: Equation) -> bool:
    """Whether a scatter puts what it is given, and not a function of what is there."""
    jaxpr = op.params["update_jaxpr"]
    return jaxpr is None or jaxpr.outvars[0] is jaxpr.invars[1]


def _is_clip(op: Equation) -> bool:
    return "CLIP" in str(op.params["mode"])


def _put_window(
    way: _Way, op: Equation, x: View, updates: View, axes: list[Axis], starts: dict[int, View]
) -> View:
    """One window, at one start."""
    whole = [Axis(False, k) for k in range(len(x.dims))]
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
    axes: list[Axis],
    starts: dict[int, View],
    shared: dict[int, int],
) -> View:
    """Rows, each at an index."""
    trace = op.trace
    for dim, index in list(starts.items()):
        along = counts_along(op.trace, index)
        whole = along is not None and index.shape[along] == x.shape[dim]
        if along is not None and whole and along not in shared.values() and len(starts) > 1:
            shared[dim] = along
            del starts[dim]
    dims = sorted(starts)
    size = prod(x.shape[d] for d in dims)
    own = [clamped(op, starts[d], x.shape[d] - 1) if _is_clip(op) else starts[d] for d in dims]
    index = flat_index(trace, own, [x.shape[d] for d in dims])
    batch = list(range(len(index.dims)))
    kept = {j: d for d, j in shared.items()}
    rows = Axis(False, dims[0])
    # Put the rows first, in the order of the indices, then what a row consists of.
    window = sorted(a for a in axes if not a.of_indices)
    updates = arranged(op, updates, axes, [*(Axis(True, j) for j in batch), *window])
    if way.agg == "sum":
        made = trace.scatter_add(updates, index, 0, size, [(j, j) for j in batch], [*kept])
        found = [rows, *(Axis(False, kept[j]) for j in batch if j in kept), *window]
    else:
        made, found = _largest_or_last(way, op, updates, index, size, kept)
        found = [rows, *(Axis(False, d) for d in found), *window]
    rest = [Axis(False, k) for k in range(len(x.dims)) if k not in dims]
    made = arranged(op, made, found, [rows, *rest])
    back = _apart(x, dims)
    made = trace.reshape(made, (*(x.shape[d] for d in dims), *made.shape[1:]))
    made = trace.transpose(made, back)
    if way.agg:
        return made if way.join == "x + y" and x.number == 0 else op.map(way.join, x, made)
    written = _written(op, index, size, kept)
    first = arranged(op, written[0], [rows, *(Axis(False, d) for d in written[1])], [rows, *rest])
    first = trace.reshape(first, (*(x.shape[d] for d in dims), *first.shape[1:]))
    return op.map("where(x >= 0, y, z)", trace.transpose(first, back), made, x)


def _apart(x: View, dims: list[int]) -> list[int]:
    """The order that puts dimensions, which come first, back to where they are in the operand."""
    now = [*dims, *(k for k in range(len(x.dims)) if k not in dims)]
    return [now.index(k) for k in range(len(x.dims))]


def _written(op: Equation, index: View, size: int, kept: dict[int, int]) -> tuple[View, list[int]]:
    """For every row the place of the last index that names it, or -1."""
    trace = op.trace
    batch = range(len(index.dims))
    gone = [j for j in batch if j not in kept]
    places = trace.reshape(
        trace.iota(prod(index.shape[j] for j in gone), "int64"), [index.shape[j] for j in gone]
    )
    row = len(index.dims)
    reads = [
        Read(index, tuple(batch)),
        Read(places, tuple(gone)),
        Read(trace.iota(size, "int64"), (row,)),
    ]
    output = [row, *(j for j in batch if j in kept)]
    join = "where(x == z, y, -1)"
    return trace.einsum(reads, output, join, "max", "int64"), [kept[j] for j in batch if j in kept]


def _largest_or_last(
    way: _Way, op: Equation, updates: View, index: View, size: int, kept: dict[int, int]
) -> tuple[View, list[int]]:
    """The rows combined at every index, or the last one put there."""
    trace = op.trace
    batch = range(len(index.dims))
    row, rank = len(updates.dims), len(updates.dims)
    dims = [kept[j] for j in batch if j in kept]
    inner = [k for k in range(rank) if k not in batch]
    if way.agg:
        output = [row, *(j for j in batch if j in kept), *inner]
        made = combined_at(trace, updates, Read(index, tuple(batch)), size, output, way.agg)
        return trace.cast(made, op.dtype), dims
    last, _ = _written(op, index, size, kept)
    gone = [j for j in batch if j not in kept]
    order = [*gone, *(j for j in batch if j in kept), *inner]
    flat = trace.transpose(updates, order)
    flat = trace.reshape(flat, (prod(updates.shape[j] for j in gone), *flat.shape[len(gone) :]))
    pairs = [(k + 1, k + 1) for k in range(len(dims))]
    return trace.take(flat, 0, trace.map("max(x, 0)", last), pairs), dims

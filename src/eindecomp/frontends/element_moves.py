"""Operations that move elements: ranges, joining end to end, looking up, and adding into rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eindecomp.frontends.arrange import merged, settled, without_axis
from eindecomp.frontends.formulas import as_formula, joined_ends, reindexed
from eindecomp.frontends.record import (
    Dim,
    Factor,
    Record,
    View,
    has_axis,
    size_of,
    transposed,
    with_dim,
)
from eindecomp.graph.ops import Concat, Gather, ScatterAdd, Slice
from eindecomp.lang.scalar import Arg, Call, Const, Expr, call, replace_args, used_args


def sliced(record: Record, array: View, place: int, start: int, stop: int) -> View:
    """The elements from `start` to `stop` along a dimension."""
    dim = array.dims[place]
    if (start, stop) == (0, size_of(dim)):
        return array
    if not has_axis(dim):
        return with_dim(array, place, (Factor(stop - start),))
    if as_formula(record, array) is not None:
        shape = [*array.shape]
        shape[place] = stop - start
        by: dict[int, Expr] = {k: Arg(k) for k in range(len(shape))}
        made = reindexed(record, array, shape, by | {place: call("add", Arg(place), start)})
        if made is not None:
            return made
    if (start % (inner := size_of(dim) // dim[0].size), stop % inner) != (0, 0):
        array, inner = merged(record, array, [place]), 1
    dim, low, high = array.dims[place], start // inner, stop // inner
    axis = dim[0].axis
    part = with_dim(array, place, (Factor(high - low, axis), *dim[1:]))
    if axis is None:
        return part
    vertex = record.graph[array.vertex]
    labels = tuple(f"l{k}" for k in range(len(vertex.shape)))
    ranges = tuple((low, high) if k == axis else None for k in range(len(labels)))
    # A part of a dimension is a dimension of its own.
    own = [None if k == axis else label for k, label in enumerate(labels)]
    made = record.add(Slice(labels, ranges), [(vertex.name, own)])
    return replace(part, vertex=made.vertex)


def concatenated(record: Record, arrays: Sequence[View], place: int) -> View:
    """Arrays one after another along a dimension."""
    if len(arrays) == 1:
        return arrays[0]
    if (made := joined_ends(record, arrays, place)) is not None:
        return made
    has = [any(has_axis(array.dims[k]) for array in arrays) for k in range(len(arrays[0].dims))]
    alike = [k for k, own in enumerate(has) if not own and k != place]  # all only repeat them
    if alike:
        return _around(record, arrays, place, alike)
    order = _order(arrays[0])
    arrays = [settled(record, transposed(array, order)) for array in arrays]
    place = order.index(place)
    labels = tuple(f"l{k}" for k in range(len(order)))
    own = [None if k == place else label for k, label in enumerate(labels)]
    made = record.add(Concat(labels, labels[place]), [(array.vertex, own) for array in arrays])
    return transposed(made, [order.index(k) for k in range(len(order))])


def _around(record: Record, arrays: Sequence[View], place: int, alike: Sequence[int]) -> View:
    """Arrays one after another, without the dimensions along which all only repeat."""
    kept = [k for k in range(len(arrays[0].dims)) if k not in alike]
    less = [replace(a, dims=tuple(a.dims[k] for k in kept)) for a in arrays]
    made = concatenated(record, less, kept.index(place))
    rest = dict(zip(kept, made.dims, strict=True))
    dims = tuple(rest.get(k, dim) for k, dim in enumerate(arrays[0].dims))
    return replace(made, dims=dims)


def _order(array: View) -> list[int]:
    """The dimensions in the order in which they lie in memory."""
    axes = [next((f.axis for f in dim if f.axis is not None), None) for dim in array.dims]
    ranks = {k: axis for k, axis in enumerate(axes) if axis is not None}
    places = sorted(ranks)
    by_axis = iter(sorted(places, key=ranks.__getitem__))
    return [next(by_axis) if k in ranks else k for k in range(len(axes))]


def gathered(
    record: Record, table: View, place: int, index: View, shared: Sequence[tuple[int, int]] = ()
) -> View:
    """What lies at given indices along a dimension of a table.

    The dimensions of the index take the place of the one that is looked up. `shared` are pairs of
    a dimension of the table and one of the index that are the same: those are the table's.
    """
    made = _formula_of(record, table, place, index, shared)
    if made is None and not shared:
        made = _range_of(record, table, place, index)
    if made is not None:
        return made
    table, index = settled(record, table), settled(record, index)
    rows = [f"t{k}" for k in range(len(table.dims))]
    own = [f"i{k}" for k in range(len(index.dims))]
    for of_table, of_index in shared:
        own[of_index] = rows[of_table]
    kept = tuple(label for k, label in enumerate(rows) if k != place)
    new = [label for label in own if label not in kept]
    output = (*rows[:place], *new, *rows[place + 1 :])
    own_rows = [None if k == place else label for k, label in enumerate(rows)]
    op = Gather(kept, place, tuple(own), output)
    return record.add(op, [(table.vertex, own_rows), (index.vertex, own)])


def _formula_of(
    record: Record, table: View, place: int, index: View, shared: Sequence[tuple[int, int]]
) -> View | None:
    """A lookup as a formula, where both the table and the indices are."""
    at = as_formula(record, index)
    if at is None or as_formula(record, table) is None:
        return None
    of_table = {mine: theirs for theirs, mine in shared}
    new = [k for k in range(len(index.dims)) if k not in of_table]
    after = len(new) - 1
    where = {k: k if k < place else k + after for k in range(len(table.dims)) if k != place}
    own: dict[int, Expr] = {k: Arg(place + n) for n, k in enumerate(new)}
    own |= {mine: Arg(where[theirs]) for mine, theirs in of_table.items()}
    shape = [*table.shape[:place], *(index.shape[k] for k in new), *table.shape[place + 1 :]]
    by: dict[int, Expr] = {k: Arg(to) for k, to in where.items()}
    return reindexed(record, table, shape, by | {place: replace_args(at, own)})


def _range_of(record: Record, table: View, place: int, index: View) -> View | None:
    """A lookup at one index, or at a range of them, as a slice of the table."""
    at = as_formula(record, index)
    if at is None or not all(index.shape):
        return None
    dims: list[Dim] = [(Factor(n),) if n != 1 else () for n in index.shape]
    if index.number is not None:
        row = int(index.number.real)
        part = without_axis(record, sliced(record, table, place, row, row + 1), place)
        return replace(part, dims=(*part.dims[:place], *dims, *part.dims[place + 1 :]))
    start = _range_start(at)
    axis = [k for k, dim in enumerate(index.dims) if has_axis(dim)]
    if start is None or len(axis) != 1 or used_args(at) != (axis[0],):
        return None
    stop = start + index.shape[axis[0]]
    if not 0 <= start < stop <= table.shape[place]:
        return None
    part = sliced(record, table, place, start, stop)
    dims[axis[0]] = part.dims[place]
    return replace(part, dims=(*part.dims[:place], *dims, *part.dims[place + 1 :]))


def _range_start(at: Expr) -> int | None:
    """Where the numbers of a formula start, if each is one more than the one before."""
    match at:
        case Call(op, (inner,)) if op in ("int32", "int64"):
            return _range_start(inner)
        case Arg():
            return 0
        case Call("add", (Arg(), Const(int() as start))):
            return start
        case _:
            return None


def added_at(record: Record, rows: View, index: View, size: int, kept: Sequence[int]) -> View:
    """Rows summed into an array of zeros, at given indices along a new first dimension of `size`.

    Rows have the dimensions of the index first. The result has those of them in `kept`, and the
    dimensions that come after them.
    """
    rows, index = settled(record, rows), settled(record, index)
    labels = tuple(f"t{k}" for k in range(len(rows.dims)))
    own = labels[: len(index.dims)]
    table = tuple(label for k, label in enumerate(labels) if k >= len(own) or k in kept)
    op = ScatterAdd(labels, own, table, 0, "r")
    return record.add(op, [(rows.vertex, labels), (index.vertex, own)], {"r": size})

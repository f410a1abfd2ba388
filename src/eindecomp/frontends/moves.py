"""Operations that move elements: ranges, joining end to end, looking up, and adding into rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eindecomp.errors import GraphError
from eindecomp.frontends.arrange import merged, settled, without_axis
from eindecomp.frontends.formulas import as_formula, joined_ends, reindexed
from eindecomp.frontends.views import Factor, View, has_axis, size_of
from eindecomp.graph.ops import Concat, Gather, ScatterAdd, Slice
from eindecomp.lang.scalar import Arg, Call, Const, call, replace_args, used_args

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.record import Record
    from eindecomp.lang.scalar import Expr


def sliced(record: Record, array: View, place: int, start: int, stop: int) -> View:
    """The elements from `start` to `stop` along a dimension."""
    dim = array.dims[place]
    if (start, stop) == (0, size_of(dim)):
        return array
    if not has_axis(dim):
        return _with_dim(array, place, (Factor(stop - start),))
    if as_formula(record, array) is not None:
        shape = [*array.shape]
        shape[place] = stop - start
        by: dict[int, Expr] = {k: Arg(k) for k in range(len(shape))}
        made = reindexed(record, array, shape, by | {place: call("add", Arg(place), start)})
        if made is not None:
            return made
    if (start % (inner := size_of(dim) // dim[0].size), stop % inner) != (0, 0):
        array, inner = merged(record, array, place), 1
    dim, low, high = array.dims[place], start // inner, stop // inner
    axis = dim[0].axis
    part = _with_dim(array, place, (Factor(high - low, axis), *dim[1:]))
    if axis is None:
        return part
    vertex = record.graph[array.vertex]
    labels = tuple(f"l{k}" for k in range(len(vertex.shape)))
    ranges = tuple((low, high) if k == axis else None for k in range(len(labels)))
    classes = dict(zip(labels, record.dims(vertex.name), strict=True))
    del classes[labels[axis]]  # a part of a dimension is a dimension of its own
    made = record.add(Slice(labels, ranges), [vertex.name], classes)
    return replace(part, vertex=made.vertex)


def _with_dim(array: View, place: int, dim: tuple[Factor, ...]) -> View:
    return replace(array, dims=(*array.dims[:place], dim, *array.dims[place + 1 :]))


def concatenated(record: Record, arrays: Sequence[View], place: int) -> View:
    """Arrays one after another along a dimension."""
    if len(arrays) == 1:
        return arrays[0]
    if (made := joined_ends(record, arrays, place)) is not None:
        return made
    arrays = [settled(record, array) for array in arrays]
    labels = tuple(f"l{k}" for k in range(len(arrays[0].dims)))
    known: dict[str, int] = {}
    for array in arrays:
        for k, dim in enumerate(record.dims(array.vertex)):
            if k != place:
                before = known.get(labels[k])
                known[labels[k]] = dim if before is None else record.names.same(before, dim)
    return record.add(Concat(labels, labels[place]), [a.vertex for a in arrays], known)


def gathered(
    record: Record,
    table: View,
    place: int,
    index: View,
    shared: Sequence[tuple[int, int]] = (),
) -> View:
    """What lies at given indices along a dimension of a table.

    The dimensions of the index take the place of the one that is looked up. `shared` are pairs of
    a dimension of the table and one of the index that are the same: those are the table's.
    """
    plain = not shared and _taken(record, table, place, index)
    if plain:
        return plain
    table, index = settled(record, table), settled(record, index)
    rows = [f"t{k}" for k in range(len(table.dims))]
    own = [f"i{k}" for k in range(len(index.dims))]
    for of_table, of_index in shared:
        own[of_index] = rows[of_table]
    kept = tuple(label for k, label in enumerate(rows) if k != place)
    new = [label for label in own if label not in kept]
    output = (*rows[:place], *new, *rows[place + 1 :])
    known = dict(zip(rows, record.dims(table.vertex), strict=True))
    del known[rows[place]]
    for label, dim in zip(own, record.dims(index.vertex), strict=True):
        known[label] = record.names.same(known[label], dim) if label in known else dim
    op = Gather(kept, place, tuple(own), output)
    return record.add(op, [table.vertex, index.vertex], known)


def _taken(record: Record, table: View, place: int, index: View) -> View | None:
    """A lookup at indices that are a formula, where it is a range of the table or a formula."""
    at = as_formula(record, index)
    if at is None or not all(index.shape):
        return None
    rank, size = len(index.dims), table.shape[place]
    if index.number is not None:
        # Every element is the same row, which is repeated.
        at_row = int(index.number.real)
        row = without_axis(record, sliced(record, table, place, at_row, at_row + 1), place)
        dims = tuple((Factor(n),) if n != 1 else () for n in index.shape)
        return replace(row, dims=(*row.dims[:place], *dims, *row.dims[place + 1 :]))
    shape = (*table.shape[:place], *index.shape, *table.shape[place + 1 :])
    by: dict[int, Expr] = {k: Arg(k if k < place else k + rank - 1) for k in range(len(table.dims))}
    by[place] = replace_args(at, [Arg(place + k) for k in range(rank)])
    made = reindexed(record, table, shape, by)
    if made is not None:
        return made
    start = _range_start(at)
    axis = [k for k, dim in enumerate(index.dims) if has_axis(dim)]
    if start is None or len(axis) != 1 or used_args(at) != (axis[0],):
        return None
    stop = start + index.shape[axis[0]]
    if not 0 <= start < stop <= size:
        return None
    part = sliced(record, table, place, start, stop)
    dims = [(Factor(n),) if n != 1 else () for n in index.shape]
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


def added_at(
    record: Record,
    source: View,
    index: View,
    place: int,
    size: int,
    shared: Sequence[tuple[int, int]],
    kept: Sequence[int] = (),
) -> View:
    """Rows summed into an array of zeros, at given indices along a dimension of `size`.

    `shared` are pairs of a dimension of the source and one of the index that are the same: every
    dimension of the index is one of the source. The result has the dimensions of the source that
    the index has not, or that are `kept`, and the new one at `place`.
    """
    source, index = settled(record, source), settled(record, index)
    rows = [f"t{k}" for k in range(len(source.dims))]
    own = [f"i{k}" for k in range(len(index.dims))]
    for of_source, of_index in shared:
        own[of_index] = rows[of_source]
    if any(label not in rows for label in own):
        raise GraphError("every dimension of the indices of a scatter is one of its rows'")
    known = dict(zip(rows, record.dims(source.vertex), strict=True))
    for label, dim in zip(own, record.dims(index.vertex), strict=True):
        known[label] = record.names.same(known[label], dim)
    table = tuple(
        label for k, label in enumerate(rows) if label not in own or k in kept
    )
    op = ScatterAdd(tuple(rows), tuple(own), table, place, "r")
    return record.add(op, [source.vertex, index.vertex], known, {"r": size})

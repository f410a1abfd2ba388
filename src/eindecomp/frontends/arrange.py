"""The same elements otherwise: dimensions split, merged or dropped, windows, joins and lookups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

from eindecomp.errors import ExpressionError, GraphError
from eindecomp.frontends import formulas
from eindecomp.frontends.draft import (
    Dim,
    DimFactor,
    Draft,
    View,
    common_factors,
    has_axis,
    size_of,
    transposed,
    whole,
    with_dim,
)
from eindecomp.frontends.windows import Along, affine, looked, looked_formula
from eindecomp.graph.ops import Concat, Fill, Gather, Reshape, ScatterAdd
from eindecomp.lang.scalar import Arg, Expr, call, replace_args

Pairs = Sequence[tuple[int, int]]
FIRST = Along((), ())
"""An axis fixed at its first index: no dimension shows it."""


def without_axis(draft: Draft, array: View, place: int) -> View:
    """The array with a dimension of size 1 that is no longer an axis of the vertex."""
    for factor in array.dims[place]:
        if factor.axis is not None:
            array = looked(draft, array, {factor.axis: FIRST})
    return with_dim(array, place, ())


def _all(items: Sequence[object]) -> range:
    return range(len(items))


def split(draft: Draft, array: View, place: int, sizes: Sequence[int]) -> View:
    """The array with a dimension split into factors of these sizes, outermost first.

    Where a factor that it has crosses a boundary of theirs, the dimension becomes one axis first.
    """
    dim = array.dims[place]
    if tuple(f.size for f in dim) == tuple(sizes):
        return array
    if common_factors([dim, tuple(map(DimFactor, sizes))]) != tuple(sizes):
        return split(draft, merged(draft, array, [place]), place, sizes)
    shares = _shares(dim, sizes)
    for k in reversed(range(len(dim))):
        array = _split_factor(draft, array, place, k, shares[k])
    return array


def _shares(dim: Dim, sizes: Sequence[int]) -> list[list[int]]:
    """The sizes into which each factor of a dimension is split."""
    rest = list(sizes)
    shares: list[list[int]] = []
    for factor in dim:
        own: list[int] = []
        while prod(own) < factor.size:
            own.append(rest.pop(0))
        shares.append(own)
    return shares


def _split_factor(draft: Draft, array: View, place: int, at: int, sizes: Sequence[int]) -> View:
    if len(sizes) < 2:
        return array
    dim = array.dims[place]
    axis = dim[at].axis
    if axis is None:
        return with_dim(array, place, (*dim[:at], *map(DimFactor, sizes), *dim[at + 1 :]))
    vertex = draft.graph[array.vertex]
    if isinstance(vertex.op, Fill) and (as_fill := _split_fill(draft, array, axis, sizes)):
        return as_fill
    own = tuple(f"l{axis}p{k}" for k in range(len(sizes)))
    before = tuple(own if k == axis else (f"l{k}",) for k in _all(vertex.shape))
    after = tuple((label,) for group in before for label in group)
    known = dict(zip(own, sizes, strict=True))
    known |= {f"l{k}": size for k, size in enumerate(vertex.shape) if k != axis}
    op = Reshape(before, after, tuple((label, known[label]) for (label,) in after))
    labels = [None if k == axis else f"l{k}" for k in _all(vertex.shape)]
    made = draft.add(op, [(vertex.name, labels)])
    parts = draft.dims(made.vertex)[axis : axis + len(sizes)]
    draft.names.split(draft.dims(vertex.name)[axis], parts)
    new = iter(made.dims)
    by = {k: tuple(f for _ in own for f in next(new)) for k, own in enumerate(before)}
    return formulas.rewired(array, made, by)


def _split_fill(draft: Draft, array: View, axis: int, sizes: Sequence[int]) -> View | None:
    """A fill with an axis split, as a fill."""
    vertex = draft.graph[array.vertex]
    shape = [*vertex.shape[:axis], *sizes, *vertex.shape[axis + 1 :]]
    index: Expr = Arg(axis)
    for k, size in enumerate(sizes[1:], axis + 1):
        index = call("add", call("mul", index, size), Arg(k))
    more = len(sizes) - 1
    by: dict[int, Expr] = {k: Arg(k if k < axis else k + more) for k in _all(vertex.shape)}
    made = formulas.reindexed(draft, whole(vertex), shape, by | {axis: index})
    if made is None:
        return None
    place = {k: made.dims[k if k < axis else k + more] for k in _all(vertex.shape)}
    parts = tuple(f for dim in made.dims[axis : axis + len(sizes)] for f in dim)
    return formulas.rewired(array, made, place | {axis: parts})


def merged(draft: Draft, array: View, places: Iterable[int]) -> View:
    """The array with each dimension at these places made one axis, unless it only repeats."""
    long = [k for k in places if len(array.dims[k]) > 1]
    if not long:
        return array
    if (value := formulas.as_formula(draft, array)) is not None:
        try:
            return formulas.formula(draft, array.shape, value, formulas.classes_of(draft, array))
        except ExpressionError:
            pass  # too long for one formula
    if array.number is not None or any(f.axis is None for dim in array.dims for f in dim):
        array = in_order(draft, array)
    groups: list[tuple[str, ...]] = []
    dims: list[Dim] = []
    for k, dim in enumerate(array.dims):
        labels = tuple(f"l{factor.axis}" for factor in dim)
        first = len(groups)
        groups += [labels] if k in long else [(label,) for label in labels]
        sizes = [size_of(dim)] if k in long else [factor.size for factor in dim]
        dims.append(tuple(DimFactor(size, axis) for axis, size in enumerate(sizes, first)))
    vertex = draft.graph[array.vertex]
    labels = [f"l{k}" for k in _all(vertex.shape)]
    before = tuple((label,) for label in labels)
    op = Reshape(before, tuple(groups), tuple(zip(labels, vertex.shape, strict=True)))
    return replace(array, vertex=draft.add(op, [(vertex.name, labels)]).vertex, dims=tuple(dims))


def in_order(draft: Draft, array: View) -> View:
    """The array without repetition: at least one axis per dimension, in the order shown."""
    dims = tuple(dim or (DimFactor(1),) for dim in array.dims)
    flat = [factor for dim in dims for factor in dim]
    if array.number is not None:
        made = draft.fill([f.size for f in flat], formulas.typed_number(array.number, array.dtype))
    elif [f.axis for f in flat] == [*_all(draft.graph[array.vertex].shape)]:
        return replace(array, dims=dims)
    else:
        output = tuple(f"o{k}" for k in _all(flat))
        of = {f.axis: label for f, label in zip(flat, output, strict=True) if f.axis is not None}
        labels = tuple(of[axis] for axis in range(len(of)))
        sizes = {label: f.size for f, label in zip(flat, output, strict=True)}
        made = draft.einsum(output, [(array.vertex, labels)], Arg(0), None, sizes)
    axes = iter(_all(flat))
    dims = tuple(tuple(DimFactor(f.size, next(axes)) for f in dim) for dim in dims)
    return replace(array, vertex=made.vertex, dims=dims, number=None)


def settled(draft: Draft, array: View) -> View:
    """The array as a vertex of its own shape: every dimension is one axis, in order."""
    return in_order(draft, merged(draft, array, _all(array.dims)))


def reshaped(draft: Draft, array: View, shape: Sequence[int]) -> View:
    """The same elements, in the same order, in another shape."""
    if prod(array.shape) != prod(shape):
        raise GraphError(f"an array of shape {array.shape} does not reshape to {tuple(shape)}")
    if not prod(shape):
        return View("", tuple((DimFactor(size),) for size in shape), array.dtype, 0)
    flat = tuple(f for dim in array.dims for f in dim)
    long = tuple(f for f in flat if f.size != 1)
    ones = tuple(f for f in flat if f.size == 1 and f.axis is not None)
    one = replace(array, dims=(long, ones))
    wanted = [size for size in shape if size != 1]
    sizes = common_factors([long, tuple(map(DimFactor, wanted))])
    one = split(draft, one, 0, wanted if sizes is None else sizes)
    return _regrouped(draft, one, shape)


def _regrouped(draft: Draft, one: View, shape: Sequence[int]) -> View:
    """The dimensions of a shape, from factors that fit it; axes of size 1 are used or dropped."""
    factors, ones = list(one.dims[0]), list(one.dims[1])
    dims: list[Dim] = []
    for size in shape:
        own: list[DimFactor] = []
        while prod(f.size for f in own) < size:
            own.append(factors.pop(0))
        dims.append(tuple(own or ones[:1]))
        ones = ones if own else ones[1:]
    array = replace(one, dims=(*dims, tuple(ones)))
    while array.dims[-1]:
        array = looked(draft, array, {array.dims[-1][0].axis or 0: FIRST})
    return replace(array, dims=array.dims[:-1])


def sliced(draft: Draft, array: View, place: int, start: int, stop: int) -> View:
    """The elements from `start` to `stop` along a dimension."""
    dim, along = array.dims[place], Along((stop - start,), (1,), start)
    inner = size_of(dim[1:])
    if len(dim) < 2 or (start % inner, stop % inner) != (0, 0):
        return seen(draft, array, {place: along})
    if formulas.as_formula(draft, array) is None and (axis := dim[0].axis) is not None:
        # Only the first factor of the dimension is cut.
        return looked(draft, array, {axis: Along(((stop - start) // inner,), (1,), start // inner)})
    return seen(draft, array, {place: along})


def seen(draft: Draft, array: View, by: Mapping[int, Along]) -> View:
    """The array with some dimensions read at other places, in whose stead others come."""
    size = array.shape
    shown = [by[k].sizes if k in by else (size[k],) for k in _all(size)]
    shape = [n for own in shown for n in own]
    if 0 in shape:
        return View("", tuple((DimFactor(n),) for n in shape), array.dtype, 0)
    if (made := looked_formula(draft, array, by)) is not None:
        return made
    moved = {k: each for k, each in by.items() if not each.is_all(size[k])}
    if any(not has_axis(array.dims[k]) and not own.stays(size[k]) for k, own in moved.items()):
        array = settled(draft, array)
    array = merged(draft, array, moved)
    axes = {k: array.dims[k][0].axis for k in moved if has_axis(array.dims[k])}
    read = {axis: by[k] for k, axis in axes.items() if axis is not None}
    made = looked(draft, array, read) if read else array
    dims: list[Dim] = []
    for k, own in enumerate(shown):
        if k not in moved:
            dims += [made.dims[k] if n == size[k] else () for n in own]
            continue
        repeats = [DimFactor(n) for n in own if n != 1]
        factors = iter(made.dims[k] if k in axes else repeats)
        dims += [() if n == 1 else (next(factors),) for n in own]
    return replace(made, dims=tuple(dims))


def concatenated(draft: Draft, arrays: Sequence[View], place: int) -> View:
    """Arrays one after another along a dimension."""
    if len(arrays) == 1:
        return arrays[0]
    if (made := formulas.joined_ends(draft, arrays, place)) is not None:
        return made
    has = [any(has_axis(array.dims[k]) for array in arrays) for k in range(len(arrays[0].dims))]
    alike = [k for k, own in enumerate(has) if not own and k != place]  # all only repeat them
    if alike:
        return _around(draft, arrays, place, alike)
    order = _order(arrays[0])
    arrays = [settled(draft, transposed(array, order)) for array in arrays]
    place = order.index(place)
    labels = tuple(f"l{k}" for k in range(len(order)))
    own = [None if k == place else label for k, label in enumerate(labels)]
    made = draft.add(Concat(labels, labels[place]), [(array.vertex, own) for array in arrays])
    return transposed(made, [order.index(k) for k in range(len(order))])


def _around(draft: Draft, arrays: Sequence[View], place: int, alike: Sequence[int]) -> View:
    """Arrays joined end to end without the dimensions along which all only repeat."""
    kept = [k for k in range(len(arrays[0].dims)) if k not in alike]
    less = [replace(a, dims=tuple(a.dims[k] for k in kept)) for a in arrays]
    made = concatenated(draft, less, kept.index(place))
    rest = dict(zip(kept, made.dims, strict=True))
    return replace(made, dims=tuple(rest.get(k, dim) for k, dim in enumerate(arrays[0].dims)))


def _order(array: View) -> list[int]:
    """The dimensions in the order in which they lie in memory."""
    axes = [next((f.axis for f in dim if f.axis is not None), None) for dim in array.dims]
    ranks = {k: axis for k, axis in enumerate(axes) if axis is not None}
    by_axis = iter(sorted(ranks, key=ranks.__getitem__))
    return [next(by_axis) if k in ranks else k for k in range(len(axes))]


def gathered(draft: Draft, table: View, place: int, index: View, shared: Pairs = ()) -> View:
    """What lies at given indices along a dimension of a table.

    The dimensions of the index take the place of the one that is looked up. `shared` are pairs of
    a dimension of the table and one of the index that are the same: those are the table's.
    """
    made = _formula_of(draft, table, place, index, shared)
    if made is None and not shared:
        made = _window_of(draft, table, place, index)
    if made is not None:
        return made
    table, index = settled(draft, table), settled(draft, index)
    rows = [f"t{k}" for k in range(len(table.dims))]
    own = [f"i{k}" for k in range(len(index.dims))]
    for of_table, of_index in shared:
        own[of_index] = rows[of_table]
    kept = tuple(label for k, label in enumerate(rows) if k != place)
    new = [label for label in own if label not in kept]
    output = (*rows[:place], *new, *rows[place + 1 :])
    own_rows = [None if k == place else label for k, label in enumerate(rows)]
    op = Gather(kept, place, tuple(own), output)
    return draft.add(op, [(table.vertex, own_rows), (index.vertex, own)])


def _formula_of(draft: Draft, table: View, place: int, index: View, shared: Pairs) -> View | None:
    """The lookup as a formula, where both the table and the indices are formulas."""
    at = formulas.as_formula(draft, index)
    if at is None or formulas.as_formula(draft, table) is None:
        return None
    of_table = {mine: theirs for theirs, mine in shared}
    new = [k for k in range(len(index.dims)) if k not in of_table]
    after = len(new) - 1
    where = {k: k if k < place else k + after for k in range(len(table.dims)) if k != place}
    own: dict[int, Expr] = {k: Arg(place + n) for n, k in enumerate(new)}
    own |= {mine: Arg(where[theirs]) for mine, theirs in of_table.items()}
    shape = [*table.shape[:place], *(index.shape[k] for k in new), *table.shape[place + 1 :]]
    by: dict[int, Expr] = {k: Arg(to) for k, to in where.items()}
    return formulas.reindexed(draft, table, shape, by | {place: replace_args(at, own)})


def _window_of(draft: Draft, table: View, place: int, index: View) -> View | None:
    """A lookup at sums of places, all of them inside the table, as a window."""
    at = formulas.as_formula(draft, index)
    found = None if at is None or not all(index.shape) else affine(at)
    if found is None:
        return None
    along = Along(index.shape, tuple(found[0].get(k, 0) for k in _all(index.dims)), found[1])
    return seen(draft, table, {place: along}) if along.stays(table.shape[place]) else None


def added_at(draft: Draft, rows: View, index: View, size: int, kept: Sequence[int]) -> View:
    """Rows summed into an array of zeros, at given indices along a new first dimension of `size`.

    Rows have the dimensions of the index first. The result has those of them in `kept`, and the
    dimensions that come after them.
    """
    rows, index = settled(draft, rows), settled(draft, index)
    labels = tuple(f"t{k}" for k in range(len(rows.dims)))
    own = labels[: len(index.dims)]
    table = tuple(label for k, label in enumerate(labels) if k >= len(own) or k in kept)
    op = ScatterAdd(labels, own, table, 0, "r")
    return draft.add(op, [(rows.vertex, labels), (index.vertex, own)], {"r": size})

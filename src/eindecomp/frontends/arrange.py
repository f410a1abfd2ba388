"""Arrays as an operation needs them: dimensions split, merged, dropped, or one axis each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

from eindecomp.errors import ExpressionError, GraphError
from eindecomp.frontends.formulas import (
    as_formula,
    classes_of,
    formula,
    reindexed,
    rewired,
    typed_number,
)
from eindecomp.frontends.record import (
    Dim,
    Factor,
    Record,
    View,
    common_factors,
    size_of,
    whole,
    with_dim,
)
from eindecomp.graph.ops import Fill, Reshape, Slice
from eindecomp.lang.scalar import Arg, Expr, call


def without_axis(record: Record, array: View, place: int) -> View:
    """The same with a dimension of size 1 that is no axis of the vertex any more."""
    for factor in array.dims[place]:
        if factor.axis is not None:
            array = _at_first(record, array, factor.axis)
    return with_dim(array, place, ())


def _at_first(record: Record, array: View, axis: int) -> View:
    """The view with an axis of its vertex fixed at its first index: it is in no dimension then."""
    vertex = record.graph[array.vertex]
    kept = [k for k in _all(vertex.shape) if k != axis]
    ranges = tuple(0 if k == axis else None for k in _all(vertex.shape))
    op = Slice(tuple(f"l{k}" for k in kept), ranges)
    made = record.add(op, [(vertex.name, [f"l{k}" for k in _all(vertex.shape)])])
    place = {old: (Factor(vertex.shape[old], new),) for new, old in enumerate(kept)}
    return rewired(array, made, place | {axis: ()})


def _all(items: Sequence[object]) -> range:
    return range(len(items))


def split(record: Record, array: View, place: int, sizes: Sequence[int]) -> View:
    """The same with a dimension made of factors of these sizes, outermost first.

    Where a factor of it reaches over an end of those, it becomes one axis first.
    """
    dim = array.dims[place]
    if tuple(f.size for f in dim) == tuple(sizes):
        return array
    if common_factors([dim, tuple(map(Factor, sizes))]) != tuple(sizes):
        return split(record, merged(record, array, [place]), place, sizes)
    shares = _shares(dim, sizes)
    for k in reversed(range(len(dim))):
        array = _split_factor(record, array, place, k, shares[k])
    return array


def _shares(dim: Dim, sizes: Sequence[int]) -> list[list[int]]:
    """The sizes into which each factor of a dimension is split."""
    rest = list(sizes)
    found: list[list[int]] = []
    for factor in dim:
        own: list[int] = []
        while prod(own) < factor.size:
            own.append(rest.pop(0))
        found.append(own)
    return found


def _split_factor(record: Record, array: View, place: int, at: int, sizes: Sequence[int]) -> View:
    if len(sizes) < 2:
        return array
    dim = array.dims[place]
    axis = dim[at].axis
    if axis is None:
        return with_dim(array, place, (*dim[:at], *map(Factor, sizes), *dim[at + 1 :]))
    vertex = record.graph[array.vertex]
    if isinstance(vertex.op, Fill) and (found := _split_fill(record, array, axis, sizes)):
        return found
    own = tuple(f"l{axis}p{k}" for k in range(len(sizes)))
    before = tuple(own if k == axis else (f"l{k}",) for k in _all(vertex.shape))
    after = tuple((label,) for group in before for label in group)
    known = dict(zip(own, sizes, strict=True))
    known |= {f"l{k}": size for k, size in enumerate(vertex.shape) if k != axis}
    op = Reshape(before, after, tuple((label, known[label]) for (label,) in after))
    labels = [None if k == axis else f"l{k}" for k in _all(vertex.shape)]
    made = record.add(op, [(vertex.name, labels)])
    parts = record.dims(made.vertex)[axis : axis + len(sizes)]
    record.names.split(record.dims(vertex.name)[axis], parts)
    new = iter(made.dims)
    by = {k: [next(new) for _ in before[k]] for k in _all(vertex.shape)}
    return rewired(array, made, {k: tuple(f for dim in own for f in dim) for k, own in by.items()})


def _split_fill(record: Record, array: View, axis: int, sizes: Sequence[int]) -> View | None:
    """A fill with an axis split, as a fill."""
    vertex = record.graph[array.vertex]
    shape = [*vertex.shape[:axis], *sizes, *vertex.shape[axis + 1 :]]
    index: Expr = Arg(axis)
    for k, size in enumerate(sizes[1:], axis + 1):
        index = call("add", call("mul", index, size), Arg(k))
    more = len(sizes) - 1
    by: dict[int, Expr] = {k: Arg(k if k < axis else k + more) for k in _all(vertex.shape)}
    made = reindexed(record, whole(vertex), shape, by | {axis: index})
    if made is None:
        return None
    place = {k: made.dims[k if k < axis else k + more] for k in _all(vertex.shape)}
    parts = tuple(f for dim in made.dims[axis : axis + len(sizes)] for f in dim)
    return rewired(array, made, place | {axis: parts})


def merged(record: Record, array: View, places: Iterable[int]) -> View:
    """The same with dimensions at these places that are one axis each, or only repeat."""
    long = [k for k in places if len(array.dims[k]) > 1]
    if not long:
        return array
    if (value := as_formula(record, array)) is not None:
        try:
            return formula(record, array.shape, value, classes_of(record, array))
        except ExpressionError:
            pass  # too long for one formula
    if array.number is not None or any(f.axis is None for dim in array.dims for f in dim):
        array = in_order(record, array)
    groups: list[tuple[str, ...]] = []
    dims: list[Dim] = []
    for k, dim in enumerate(array.dims):
        labels = tuple(f"l{factor.axis}" for factor in dim)
        first = len(groups)
        groups += [labels] if k in long else [(label,) for label in labels]
        sizes = [size_of(dim)] if k in long else [factor.size for factor in dim]
        dims.append(tuple(Factor(size, axis) for axis, size in enumerate(sizes, first)))
    vertex = record.graph[array.vertex]
    labels = [f"l{k}" for k in _all(vertex.shape)]
    before = tuple((label,) for label in labels)
    op = Reshape(before, tuple(groups), tuple(zip(labels, vertex.shape, strict=True)))
    made = record.add(op, [(vertex.name, labels)])
    return replace(array, vertex=made.vertex, dims=tuple(dims))


def in_order(record: Record, array: View) -> View:
    """The same without repetition: at least one axis a dimension, in the order they are shown."""
    dims = tuple(dim or (Factor(1),) for dim in array.dims)
    flat = [factor for dim in dims for factor in dim]
    if array.number is not None:
        made = record.fill([f.size for f in flat], typed_number(array.number, array.dtype))
    elif [f.axis for f in flat] == [*_all(record.graph[array.vertex].shape)]:
        return replace(array, dims=dims)
    else:
        output = tuple(f"o{k}" for k in _all(flat))
        of = {f.axis: label for f, label in zip(flat, output, strict=True) if f.axis is not None}
        labels = tuple(of[axis] for axis in range(len(of)))
        sizes = {label: f.size for f, label in zip(flat, output, strict=True)}
        made = record.einsum(output, [(array.vertex, labels)], Arg(0), None, sizes)
    axes = iter(_all(flat))
    dims = tuple(tuple(Factor(f.size, next(axes)) for f in dim) for dim in dims)
    return replace(array, vertex=made.vertex, dims=dims, number=None)


def settled(record: Record, array: View) -> View:
    """The same as a vertex of its own shape: every dimension is one axis, in order."""
    return in_order(record, merged(record, array, _all(array.dims)))


def reshaped(record: Record, array: View, shape: Sequence[int]) -> View:
    """The same elements, in the same order, in another shape."""
    if prod(array.shape) != prod(shape):
        raise GraphError(f"an array of shape {array.shape} does not reshape to {tuple(shape)}")
    if not prod(shape):
        nothing = tuple((Factor(size),) for size in shape)
        return View("", nothing, array.dtype, 0)
    flat = tuple(f for dim in array.dims for f in dim)
    long = tuple(f for f in flat if f.size != 1)
    ones = tuple(f for f in flat if f.size == 1 and f.axis is not None)
    one = replace(array, dims=(long, ones))
    wanted = [size for size in shape if size != 1]
    sizes = common_factors([long, tuple(map(Factor, wanted))])
    one = split(record, one, 0, wanted if sizes is None else sizes)
    return _regrouped(record, one, shape)


def _regrouped(record: Record, one: View, shape: Sequence[int]) -> View:
    """Dimensions of a shape from factors that fit it, and axes of size 1, kept or dropped."""
    factors, ones = list(one.dims[0]), list(one.dims[1])
    dims: list[Dim] = []
    for size in shape:
        own: list[Factor] = []
        while prod(f.size for f in own) < size:
            own.append(factors.pop(0))
        dims.append(tuple(own or ones[:1]))
        ones = ones if own else ones[1:]
    array = replace(one, dims=(*dims, tuple(ones)))
    while array.dims[-1]:
        array = _at_first(record, array, array.dims[-1][0].axis or 0)
    return replace(array, dims=array.dims[:-1])

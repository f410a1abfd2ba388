"""Arrays made from indices alone: positions, masks and constants, which stay formulas.

Whatever is done to them, other than to combine them with data, makes a formula again: a fill, which
every device makes for itself, or a number, if all elements are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from eindecomp.errors import ExpressionError
from eindecomp.frontends.draft import Dim, DimFactor, Draft, View, size_of
from eindecomp.graph.evaluate import compute
from eindecomp.graph.ops import Fill
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.dtypes import INT64, Array, DType, Kind, concrete, kind
from eindecomp.lang.monoid import BUILTIN
from eindecomp.lang.scalar import Arg, Const, Expr, Number, call, chain, replace_args, used_args
from eindecomp.lang.scalar import size_of as nodes_of
from eindecomp.lang.scalar_types import kind_of_number, result_type
from eindecomp.lang.simplify import simplify

MOST_EVALUATED = 2**20
"""How many elements are computed at most to find a plainer formula for them."""
MOST_LISTED = 256
"""How many different values a formula lists at most."""


def formula(
    draft: Draft, shape: Sequence[int], value: Expr, classes: Sequence[int | None] = ()
) -> View:
    """An array from a formula of its indices, repeated along those that do not matter.

    `classes` are those of dimensions that are known. A formula that is too long raises an
    ExpressionError.
    """
    value = replace_args(value, [Arg(k) if size != 1 else Const(0) for k, size in enumerate(shape)])
    value = simplify(value, [INT64] * len(shape))
    dtype = result_type(value, [INT64] * len(shape), {})
    used = sorted(used_args(value))
    sizes = [shape[k] for k in used]
    value = replace_args(value, {k: Arg(n) for n, k in enumerate(used)})
    is_plain = kind(dtype) > Kind.INT or (kind(dtype) is Kind.INT and nodes_of(value) < 4)
    is_known = not is_plain and prod(sizes) <= MOST_EVALUATED
    plainer = recognized(evaluated(sizes, value, dtype)) if is_known else None
    if plainer is not None:
        kept = sorted(used_args(plainer))
        used, sizes = [used[k] for k in kept], [sizes[k] for k in kept]
        value = replace_args(plainer, {k: Arg(n) for n, k in enumerate(kept)})
    axes = {k: n for n, k in enumerate(used)}
    dims = tuple(() if n == 1 else (DimFactor(n, axes.get(k)),) for k, n in enumerate(shape))
    if not used:
        return View("", dims, dtype, evaluated((), value, dtype).item())
    made = draft.fill(sizes, value)
    for k, own in zip(used, draft.dims(made.vertex), strict=True):
        if k < len(classes) and (known := classes[k]) is not None:
            draft.names.same(own, known)
    return View(made.vertex, dims, dtype)


def evaluated(shape: Sequence[int], value: Expr, dtype: DType) -> Array:
    """The elements of a formula."""
    labels = tuple(f"l{k}" for k in range(len(shape)))
    with np.errstate(all="ignore"):
        return compute(Vertex("T", Fill(labels, value), (), tuple(shape), dtype), [], {}, {})


def recognized(array: Array) -> Expr | None:
    """The formula of an array, if it is linear in its indices; of fractions, if it is constant.

    >>> print(recognized(np.array([[1, 3], [4, 6]])))
    x * 3 + y * 2 + 1
    """
    dtype = np.dtype(array.dtype)
    if not array.size:
        return None
    origin = array[(0,) * array.ndim]
    if bool((array == origin).all()):
        return typed_number(origin.item(), dtype)
    if kind(dtype) is not Kind.INT:
        return None
    start = int(origin)
    steps = [
        int(np.take(array, min(1, size - 1), axis).flat[0]) - start
        for axis, size in enumerate(array.shape)
    ]
    places = np.ogrid[tuple(slice(size) for size in array.shape)]
    if not np.array_equal(sum(map(np.multiply, steps, places), start), array):
        return None
    scaled = [(Arg(axis), step) for axis, step in enumerate(steps) if step]
    value = chain("add", [axis if step == 1 else call("mul", axis, step) for axis, step in scaled])
    value = call("add", value, start) if start else value
    return value if dtype == INT64 else call(dtype.name, value)


def constant(draft: Draft, array: Array) -> View | None:
    """An array of known values as a formula, if there is one that is not too long.

    >>> from eindecomp.frontends.draft import Draft
    >>> draft = Draft()
    >>> made = constant(draft, np.array([[0.5, 0.25, 2.0]], "float32"))
    >>> print(draft.graph[made.vertex].op.value)
    float32(where(x < 1, 0.5, where(x < 2, 0.25, 2.0)))
    """
    value = recognized(array) if array.size else None
    if value is None and max(array.shape, default=0) == array.size <= MOST_LISTED:
        along = array.shape.index(array.size)
        value = call(array.dtype.name, _listed(array.reshape(-1).tolist(), along, 0))
    return None if value is None else formula(draft, array.shape, value)


def _listed(values: list[Any], along: int, start: int) -> Expr:
    """A choice among values by halving."""
    if all(value == values[0] for value in values):
        return Const(values[0])
    half = len(values) // 2
    low, high = _listed(values[:half], along, start), _listed(values[half:], along, start + half)
    return call("where", call("lt", Arg(along), start + half), low, high)


def as_formula(draft: Draft, array: View) -> Expr | None:
    """The elements of an array as a formula of the indices of its dimensions, if they are one."""
    if array.number is not None:
        return typed_number(array.number, array.dtype)
    vertex = draft.graph[array.vertex]
    if not isinstance(vertex.op, Fill) or 0 in array.shape:  # an empty one has no elements
        return None
    indices: dict[int, Expr] = {}
    for k, dim in enumerate(array.dims):
        inner = size_of(dim)
        for n, factor in enumerate(dim):
            inner //= factor.size or 1
            if factor.axis is not None:
                index: Expr = Arg(k) if inner == 1 else call("floordiv", Arg(k), inner)
                indices[factor.axis] = call("mod", index, factor.size) if n else index
    value = replace_args(vertex.op.value, indices)
    own_type = result_type(vertex.op.value, [INT64] * len(vertex.shape), {})
    return value if concrete(own_type) == array.dtype else call(array.dtype.name, value)


def classes_of(draft: Draft, array: View) -> list[int | None]:
    """The class of every dimension that is one axis."""
    if array.number is not None:
        return [None] * len(array.dims)
    own = draft.dims(array.vertex)
    axes = [dim[0].axis if len(dim) == 1 else None for dim in array.dims]
    return [None if axis is None else own[axis] for axis in axes]


def reindexed(
    draft: Draft,
    array: View,
    shape: Sequence[int],
    by: Mapping[int, Expr],
    unless: Sequence[tuple[Expr, Expr]] = (),
) -> View | None:
    """A formula read at other indices: `by` gives those of its dimensions in terms of `shape`'s.

    Each pair in `unless` has what must hold, and what stands where it does not.
    """
    value = as_formula(draft, array)
    if value is None:
        return None
    old = classes_of(draft, array)
    same = {index.index: old[k] for k, index in by.items() if isinstance(index, Arg)}
    classes = [same.get(k) for k in range(len(shape))]
    value = replace_args(value, by)
    for holds, beside in unless:
        value = call("where", holds, value, beside)
    try:
        return formula(draft, shape, value, classes)
    except ExpressionError:
        return None  # too long for one formula


def joined_ends(draft: Draft, arrays: Sequence[View], place: int) -> View | None:
    """Formulas one after another along a dimension."""
    formulas = [as_formula(draft, array) for array in arrays]
    values = [value for value in formulas if value is not None]
    if len(values) < len(formulas):
        return None
    shape = [*arrays[0].shape]
    shape[place] = sum(array.shape[place] for array in arrays)
    end = shape[place]
    value: Expr | None = None
    every: dict[int, Expr] = {k: Arg(k) for k in range(len(shape))}
    if len({*arrays}) == 1:  # the same again and again
        again = call("mod", Arg(place), arrays[0].shape[place])
        return reindexed(draft, arrays[0], shape, every | {place: again})
    try:
        for array, own in zip(reversed(arrays), reversed(values), strict=True):
            end -= array.shape[place]
            moved = replace_args(own, every | {place: call("sub", Arg(place), end)})
            inside = call("lt", Arg(place), end + array.shape[place])
            value = moved if value is None else call("where", inside, moved, value)
        classes = classes_of(draft, arrays[-1])
        classes[place] = None  # longer than that of any part
        return formula(draft, shape, value or Const(0), classes)
    except ExpressionError:
        return None


def rewired(array: View, made: View, place: Mapping[int, Dim]) -> View:
    """The view of another vertex; `place` has the factors that each old axis becomes there."""
    dims = tuple(
        tuple(g for f in dim for g in ((f,) if f.axis is None else place[f.axis]))
        for dim in array.dims
    )
    return View(made.vertex, dims, made.dtype, made.number)


def cast_number(value: Number, dtype: DType) -> Number:
    """A number as types of this kind hold it: an int for integers, and so on."""
    match kind(dtype):
        case Kind.BOOL:
            return bool(value)
        case Kind.INT:
            return int(value.real) if isinstance(value, complex) else int(value)
        case Kind.FLOAT:
            return float(value.real) if isinstance(value, complex) else float(value)
        case Kind.COMPLEX:
            return complex(value)


def typed_number(value: Number, dtype: DType) -> Expr:
    """A number in an expression, of exactly this type."""
    number = Const(cast_number(value, dtype))
    own = concrete(kind_of_number(number.value))
    return number if own == dtype else call(dtype.name, number)


def neutral(agg: str, dtype: DType) -> Number:
    """The number of a type that changes no aggregate.

    >>> import numpy as np
    >>> neutral("max", np.dtype("int8")), neutral("min", np.dtype("float32"))
    (-128, inf)
    """
    return BUILTIN[agg].identity_for([dtype])[0].item()

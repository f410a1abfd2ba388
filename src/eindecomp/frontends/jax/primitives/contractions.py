"""Aggregations, orders along a dimension, products of arrays, convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, prod
from typing import Any

from eindecomp.frontends import operations
from eindecomp.frontends.draft import View
from eindecomp.frontends.formulas import neutral
from eindecomp.frontends.jax.registry import Equation, primitive
from eindecomp.frontends.join import Indexed
from eindecomp.frontends.rows_at_indices import ends_of, group_of, grouped_product
from eindecomp.frontends.windows import Along, around, frames
from eindecomp.graph.text.macros import prelude_monoids
from eindecomp.lang.dtypes import DType, Kind, dtype, kind
from eindecomp.lang.scalar import Arg, Tuple

_AGGREGATIONS = {
    "reduce_sum": "sum",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "prod",
    "reduce_and": "all",
    "reduce_or": "any",
    "reduce_xor": "xor",
}
_RUNNING = {"cumsum": "sum", "cumprod": "prod", "cummax": "max", "cummin": "min"}


@primitive(*_AGGREGATIONS)
def _reduced(op: Equation, x: View) -> View:
    agg = _AGGREGATIONS[op.name]
    axes = [int(axis) for axis in op.params["axes"]]
    if agg in ("any", "all", "xor") and kind(x.dtype) is not Kind.BOOL:
        op.refuse(f"bits of integers cannot be expressed, only truth values; it has {x.dtype}")
    if agg == "xor":
        return op.map("x % 2 == 1", op.trace.reduce(op.trace.cast(x, "int32"), axes, "sum"))
    return op.trace.reduce(x, axes, agg, dtype=op.dtype) if axes else x


@primitive(*_RUNNING)
def _cumulated(op: Equation, x: View) -> View:
    axis, backwards = int(op.params["axis"]), bool(op.params["reverse"])
    made = operations.running(op.trace, x, axis, _RUNNING[op.name], backwards=backwards)
    return op.trace.cast(made, op.dtype)


@primitive("argmax", "argmin")
def _first(op: Equation, x: View) -> View:
    monoid = "first_max" if op.name == "argmax" else "first_min"
    (axis,) = (int(each) for each in op.params["axes"])
    return op.trace.cast(operations.first_largest(op.trace, x, axis, monoid), op.dtype)


@primitive("cumlogsumexp")
def _cumlogsumexp(op: Equation, x: View) -> View:
    axis, backwards = int(op.params["axis"]), bool(op.params["reverse"])
    largest = operations.running(op.trace, x, axis, "max", backwards=backwards)
    shift = op.trace.map(f"where(abs(x) < {inf}, x, 0)", largest)
    total = operations.running(
        op.trace, x, axis, "sum", backwards=backwards, join="exp(x - x4)", here=[shift]
    )
    return op.map("log(x) + y", total, shift)


@primitive("sort")
def _sort(op: Equation, *arrays: View) -> list[View]:
    axis, keys = int(op.params["dimension"]), int(op.params["num_keys"])
    rank = operations.ranks(op.trace, arrays[:keys], axis, largest=False)
    return [operations.at_rank(op.trace, array, rank, axis, array.shape[axis]) for array in arrays]


@primitive("top_k", "approx_top_k")
def _top_k(op: Equation, x: View) -> list[View]:
    if op.name == "approx_top_k" and not op.params["is_max_k"]:
        op.refuse("only the largest are, not the smallest")
    axis = int(op.params.get("axis", op.params.get("reduction_dimension", -1))) % len(x.dims)
    most, places = operations.first_in_order(op.trace, x, axis, int(op.params["k"]), largest=True)
    return [most, op.trace.cast(places, op.results[1].dtype)]


@primitive("dot_general")
def _dot_general(op: Equation, x: View, y: View) -> View:
    numbers = op.params["dimension_numbers"]
    first, second, output = product_symbols(numbers, len(x.dims), len(y.dims))
    if not numbers[1][0]:
        _vote_linear(op, x, y, first, second)
    wanted = dtype(op.dtype)
    if wanted not in (x.dtype, y.dtype):
        # A sum in a wider type is not rounded to the operands' type first.
        x, y = op.trace.cast(x, wanted), op.trace.cast(y, wanted)
    return op.trace.einsum([Indexed(x, first), Indexed(y, second)], output, dtype=op.dtype)


Symbols = tuple[int, ...]


def product_symbols(numbers: Any, left: int, right: int) -> tuple[Symbols, Symbols, Symbols]:
    """A symbol for each dimension of the operands of `dot_general`, of these ranks, and its result.

    >>> product_symbols((((1,), (0,)), ((), ())), 2, 2)
    ((0, 1), (1, 3), (0, 3))
    """
    (summed, of_right), (batch, right_batch) = numbers
    first, second = tuple(range(left)), [left + k for k in range(right)]
    for a, b in (*zip(summed, of_right, strict=True), *zip(batch, right_batch, strict=True)):
        second[int(b)] = int(a)
    gone = {int(a) for a in (*summed, *batch)}
    free = [s for s in first if s not in gone]
    return first, tuple(second), (*map(int, batch), *free, *(s for s in second if s not in first))


def _vote_linear(op: Equation, x: View, y: View, first: Symbols, second: Symbols) -> None:
    """Suggest names of a linear layer: what it contracts, its features, what they are of."""
    contracted = [s for s in first if s in second]
    free, features = [s for s in first if s not in second], [s for s in second if s not in first]
    if len(contracted) != 1 or len(features) != 1 or len(y.dims) != 2:
        return
    names = dict(zip(free, ["b", "s"] if len(free) == 2 else ["b"], strict=False))
    names |= {contracted[0]: "a", features[0]: "f"}
    op.trace.vote(x, [names.get(s) for s in first], 1)
    op.trace.vote(y, [names.get(s) for s in second], 1)


@primitive("ragged_dot_general")
def _ragged_dot(op: Equation, x: View, matrices: View, sizes: View) -> View:
    numbers = op.params["ragged_dot_dimension_numbers"]
    (left, right), batch = numbers.dot_dimension_numbers
    rows, groups = numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions
    form = (len(x.dims), len(matrices.dims), *left, *rows, *groups, len(right), *batch)
    if form != (2, 3, 1, 0, 0, 1, (), ()) or op.params["group_offset"] is not None:
        op.refuse("rows of a matrix times one matrix for each group of them are")
    matrices = op.trace.transpose(matrices, [0, int(right[0]), 3 - int(right[0])])
    group = group_of(op.trace, ends_of(op.trace, sizes), x.shape[0])
    return grouped_product(op.trace, x, matrices, group, op.dtype)


@primitive("conv_general_dilated")
def _convolution(op: Equation, x: View, w: View) -> View:
    p, trace = op.params, op.trace
    numbers = p["dimension_numbers"]
    x, w = trace.transpose(x, numbers.lhs_spec), trace.transpose(w, numbers.rhs_spec)
    groups = int(p["feature_group_count"])
    if (by_batch := int(p["batch_group_count"])) > 1:
        # Groups of the batch, each for filters of its own, are groups of channels as well.
        batch, channels, *rest = x.shape
        apart = trace.reshape(x, (by_batch, batch // by_batch, channels, *rest))
        order = [1, 0, *range(2, len(apart.dims))]
        merged = (batch // by_batch, by_batch * channels, *rest)
        x, groups = trace.reshape(trace.transpose(apart, order), merged), by_batch
    filters, _, *window = w.shape
    w = operations.split_in_two(trace, w, 0, (groups, filters // groups))
    along = _frames(
        x.shape[2:], window, p["window_strides"], p["rhs_dilation"], p["padding"], p["lhs_dilation"]
    )
    x = operations.convolved(trace, x, w, along, op.dtype)
    return trace.transpose(x, [numbers.out_spec.index(place) for place in range(len(x.dims))])


def _frames(
    shape: Sequence[int],
    sizes: Sequence[int],
    steps: Sequence[int],
    spreads: Sequence[int],
    ends: Sequence[tuple[int, int]],
    apart: Sequence[int],
    outside: int | float = 0,
) -> list[Along]:
    """How windows of these sizes see dimensions."""
    given = zip(shape, sizes, steps, spreads, ends, apart, strict=True)
    return [
        frames(around(n, int(low), int(high), int(each) - 1, outside), int(size), int(step), int(d))
        for n, size, step, d, (low, high), each in given
    ]


def _windows(op: Equation, shape: Sequence[int], agg: str, dtype: DType) -> list[Along]:
    """How the windows of a pool see dimensions of this shape."""
    p, ones, beside = op.params, (1,) * len(shape), neutral(agg, dtype)
    size, step, ends = p["window_dimensions"], p["window_strides"], p["padding"]
    spread, apart = p.get("window_dilation", ones), p.get("base_dilation", ones)
    outside = 0 if isinstance(beside, complex) else beside
    return _frames(shape, size, step, spread, ends, apart, outside)


_POOLS = {"reduce_window_sum": "sum", "reduce_window_max": "max", "reduce_window_min": "min"}


@primitive(*_POOLS)
def _pool(op: Equation, x: View) -> View:
    agg = _POOLS[op.name]
    along = _windows(op, x.shape, agg, x.dtype)
    seen, inside = operations.windows(op.trace, x, along)
    return op.trace.reduce(seen, inside, agg, dtype=op.dtype)


def _chosen(op: Equation, x: View) -> Indexed:
    """Where in every window the first largest or smallest element is."""
    agg = {"ge": "max", "le": "min"}[op.params["select_prim"].name]
    seen, inside = operations.windows(op.trace, x, _windows(op, x.shape, agg, x.dtype))
    reads = [Indexed(seen, tuple(range(len(seen.dims)))), _numbered(op, inside)]
    output = tuple(place - 1 for place in inside)
    join, monoid = Tuple((Arg(0), Arg(1))), prelude_monoids()[f"first_{agg}"]
    return Indexed(op.trace.einsum(reads, output, join, monoid, "int64"), output)


def _numbered(op: Equation, symbols: Sequence[int]) -> Indexed:
    """The numbers of the elements of a window."""
    sizes = op.params["window_dimensions"]
    numbers = op.trace.reshape(op.trace.iota(prod(sizes), "int64"), sizes)
    return Indexed(numbers, tuple(symbols))


@primitive("select_and_gather_add")
def _at_chosen(op: Equation, tangents: View, x: View) -> View:
    chosen = _chosen(op, x)
    seen, inside = operations.windows(op.trace, tangents, _windows(op, x.shape, "sum", x.dtype))
    reads = [Indexed(seen, tuple(range(len(seen.dims)))), chosen, _numbered(op, inside)]
    return op.trace.einsum(reads, chosen.symbols, "where(y == z, x, 0)", "sum", op.dtype)


@primitive("select_and_scatter_add")
def _to_chosen(op: Equation, adjoints: View, x: View) -> View:
    p = op.params
    given = zip(x.shape, p["window_dimensions"], p["window_strides"], p["padding"], strict=True)
    # An element is the one with number i in window (place + what is before it - i) / step.
    by = [Along((n, int(k)), (1, -1), int(low), int(s), 0) for n, k, s, (low, _) in given]

    def reached(array: View, outside: int) -> Indexed:
        seen, _ = operations.windows(op.trace, array, [replace(w, outside=outside) for w in by])
        return Indexed(seen, tuple(range(len(seen.dims))))

    numbered = _numbered(op, range(1, 2 * len(x.dims), 2))
    reads = [reached(adjoints, 0), reached(_chosen(op, x).array, -1), numbered]
    output = range(0, 2 * len(x.dims), 2)
    return op.trace.einsum(reads, output, "where(y == z, x, 0)", "sum", op.dtype)

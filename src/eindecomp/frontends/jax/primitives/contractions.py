"""Products summed over dimensions: of arrays, by groups of rows, over windows; and pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.frontends.formulas import neutral
from eindecomp.frontends.jax.registry import Equation, primitive
from eindecomp.frontends.join import Read
from eindecomp.frontends.operations import (
    convolved,
    ends_of,
    group_of,
    grouped_product,
    padded,
    windows,
)
from eindecomp.lang.dtypes import dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.views import View


@primitive("dot_general")
def _dot_general(op: Equation, x: View, y: View) -> View:
    (left, right), (of_left, of_right) = op.params["dimension_numbers"]
    first = tuple(range(len(x.dims)))
    second = [len(first) + k for k in range(len(y.dims))]
    for a, b in (*zip(left, right, strict=True), *zip(of_left, of_right, strict=True)):
        second[int(b)] = int(a)
    batch = [int(a) for a in of_left]
    gone = {int(a) for a in left} | {*batch}
    output = [*batch, *(s for s in first if s not in gone), *(s for s in second if s not in first)]
    if not batch:
        _vote_linear(op, x, y, first, tuple(second))
    wanted = dtype(op.dtype)
    if wanted not in (x.dtype, y.dtype):
        # A sum in a wider type is not rounded to the operands' type first.
        x, y = op.trace.cast(x, wanted), op.trace.cast(y, wanted)
    return op.trace.einsum([Read(x, first), Read(y, tuple(second))], output, dtype=op.dtype)


def _vote_linear(
    op: Equation, x: View, y: View, first: Sequence[int], second: Sequence[int]
) -> None:
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
    found = (len(x.dims), len(matrices.dims), *left, *rows, *groups, len(right), *batch)
    if found != (2, 3, 1, 0, 0, 1, (), ()) or op.params["group_offset"] is not None:
        op.refuse("rows of a matrix times one matrix for each group of them are")
    matrices = op.trace.transpose(matrices, [0, int(right[0]), 3 - int(right[0])])
    group = group_of(op.trace, ends_of(op.trace, sizes), x.shape[0])
    return grouped_product(op.trace, x, matrices, group, op.dtype)


@primitive("conv_general_dilated")
def _convolution(op: Equation, x: View, w: View) -> View:
    p, trace = op.params, op.trace
    numbers = p["dimension_numbers"]
    x, w = trace.transpose(x, numbers.lhs_spec), trace.transpose(w, numbers.rhs_spec)
    zero = trace.number(0, x.dtype)
    for k, (low, high) in enumerate(p["padding"]):
        between = int(p["lhs_dilation"][k]) - 1
        x = padded(trace, x, zero, k + 2, int(low), int(high), between)
    groups = int(p["feature_group_count"])
    if (by_batch := int(p["batch_group_count"])) > 1:
        # Groups of the batch, each for filters of its own, are groups of channels as well.
        batch, channels, *rest = x.shape
        apart = trace.reshape(x, (by_batch, batch // by_batch, channels, *rest))
        order = [1, 0, *range(2, len(apart.dims))]
        merged = (batch // by_batch, by_batch * channels, *rest)
        x, groups = trace.reshape(trace.transpose(apart, order), merged), by_batch
    made = convolved(trace, x, w, p["window_strides"], p["rhs_dilation"], groups, op.dtype)
    back = [numbers.out_spec.index(place) for place in range(len(made.dims))]
    return trace.transpose(made, back)


_POOLS = {"reduce_window_sum": "sum", "reduce_window_max": "max", "reduce_window_min": "min"}


@primitive(*_POOLS)
def _pool(op: Equation, x: View) -> View:
    p, trace, agg = op.params, op.trace, _POOLS[op.name]
    beside = trace.number(neutral(agg, x.dtype), x.dtype)
    for place, (low, high) in enumerate(p["padding"]):
        between = int(p["base_dilation"][place]) - 1
        x = padded(trace, x, beside, place, int(low), int(high), between)
    sizes, steps = p["window_dimensions"], p["window_strides"]
    seen, inside = windows(trace, x, sizes, steps, p["window_dilation"])
    return trace.reduce(seen, inside, agg, dtype=op.dtype)

"""`dot_general`: products summed over dimensions, and the names of the dimensions they show."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from eindecomp.frontends.formulas import neutral
from eindecomp.frontends.jax.primitives.shapes import padded
from eindecomp.frontends.jax.registry import Equation, primitive
from eindecomp.frontends.join import Read
from eindecomp.frontends.operations.groups import ends_of, group_of, grouped_product
from eindecomp.frontends.operations.windows import windowed
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
        x = padded(op, x, zero, k + 2, (int(low), int(high), int(p["lhs_dilation"][k]) - 1))
    rank = len(p["padding"])
    for k in range(rank):
        size, step = w.shape[k + 2], int(p["window_strides"][k])
        x = windowed(op.trace, x, 2 + 2 * k, size, step, int(p["rhs_dilation"][k]))
    groups, batch_groups = int(p["feature_group_count"]), int(p["batch_group_count"])
    of_batch = batch_groups > 1
    count = batch_groups if of_batch else groups
    n, c, o = x.shape[0], x.shape[1], w.shape[0]
    lead = (count, n // count, 1, c) if of_batch else (1, n, count, c // count)
    x = trace.reshape(x, (*lead, *x.shape[2:]))
    x = trace.squeeze(x, [2 if of_batch else 0])  # g n c … or n g c …
    w = trace.reshape(w, (count, o // count, *w.shape[1:]))
    # Symbols: 0 group, 1 batch, 2 input feature, 3 output feature, 4… where, then in the window.
    outer, inner = [4 + k for k in range(rank)], [4 + rank + k for k in range(rank)]
    pairs = [s for pair in zip(outer, inner, strict=True) for s in pair]
    first = Read(x, (*((0, 1) if of_batch else (1, 0)), 2, *pairs))
    _vote_convolution(op, first.array, w, of_batch=of_batch)
    if x.dtype != op.dtype:
        first, w = Read(trace.cast(x, op.dtype), first.symbols), trace.cast(w, op.dtype)
    made = trace.einsum([first, Read(w, (0, 3, 2, *inner))], [1, 0, 3, *outer], dtype=op.dtype)
    made = trace.reshape(made, (made.shape[0], o, *made.shape[3:]))
    back = [0] * (rank + 2)
    for k, place in enumerate(numbers.out_spec):
        back[place] = k
    return trace.transpose(made, back)


def _vote_convolution(op: Equation, x: View, w: View, *, of_batch: bool) -> None:
    """Suggest names of a convolution's dimensions."""
    rank = len(x.dims)
    if not of_batch:
        op.trace.vote(x, ["b", None, "c", *[None] * (rank - 3)], 1)
    op.trace.vote(w, [None, "f", "c", *[None] * (len(w.dims) - 3)], 1)


_POOLS = {"reduce_window_sum": "sum", "reduce_window_max": "max", "reduce_window_min": "min"}


def _pool(agg: str, op: Equation, x: View) -> View:
    p, trace = op.params, op.trace
    beside = trace.number(neutral(agg, x.dtype), x.dtype)
    rank = len(x.dims)
    gone: list[int] = []
    for k in range(rank):
        place = k + len(gone)
        low, high = p["padding"][k]
        x = padded(op, x, beside, place, (int(low), int(high), int(p["base_dilation"][k]) - 1))
        size, step = int(p["window_dimensions"][k]), int(p["window_strides"][k])
        if (size, step) != (1, 1):
            x = windowed(op.trace, x, place, size, step, int(p["window_dilation"][k]))
            gone.append(place + 1)
    return trace.reduce(x, gone, agg, dtype=op.dtype) if gone else x


for _name, _agg in _POOLS.items():
    primitive(_name)(partial(_pool, _agg))

"""Products of matrices, convolutions, pools and attention."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf, prod, sqrt
from typing import Any

from opt_einsum.parser import parse_einsum_input

from eindecomp.frontends.draft import View
from eindecomp.frontends.formulas import evaluated, neutral
from eindecomp.frontends.join import Indexed
from eindecomp.frontends.operations import convolved, split_in_two, windows
from eindecomp.frontends.rows_at_indices import group_of, grouped_product
from eindecomp.frontends.torch.operators.aggregations import softmax_of
from eindecomp.frontends.torch.registry import Number, Operation, number, operator
from eindecomp.frontends.windows import Along, around, frames
from eindecomp.lang.dtypes import BOOL, DType
from eindecomp.lang.scalar import Expr


@operator("aten.linear")
def linear(op: Operation, x: View, weight: View, bias: View | None = None) -> View:
    """Rows times a matrix with its output dimension first, plus a bias."""
    rank = len(x.dims)
    rows = tuple(range(rank - 1))
    if len(weight.dims) == 1:
        return matmul(op, x, weight)
    reads = [Indexed(x, (*rows, rank)), Indexed(weight, (rank + 1, rank))]
    made = op.trace.einsum(reads, (*rows, rank + 1), dtype=op.dtype)
    op.trace.vote(weight, ("f", None), 1)
    return made if bias is None else op.trace.map("x + y", made, bias, dtype=op.dtype)


@operator("aten.matmul", "aten.mm", "aten.bmm")
def matmul(op: Operation, x: View, other: View | None = None, mat2: View | None = None) -> View:
    """A product of matrices, or vectors, with all dimensions before them alike or repeated."""
    second = mat2 if other is None else other
    assert second is not None  # noqa: S101 - one of both is in every schema
    left, right = len(x.dims), len(second.dims)
    rank = max(left, right, 2)
    i, j, k = rank, rank + 1, rank + 2
    batch = tuple(range(rank - 2))
    first = (*batch[len(batch) - max(left - 2, 0) :], *((i, k) if left > 1 else (k,)))
    last = (*batch[len(batch) - max(right - 2, 0) :], *((k, j) if right > 1 else (k,)))
    output = (*batch, *((i,) if left > 1 else ()), *((j,) if right > 1 else ()))
    return op.trace.einsum([Indexed(x, first), Indexed(second, last)], output, dtype=op.dtype)


@operator("aten.addmm", "aten.baddbmm")
def add_product(op: Operation, x: View, beta: Number = 1, alpha: Number = 1, **pair: View) -> View:
    """A product of matrices added to another matrix."""
    left, right = pair.values()
    op.trace.vote(right, (*(None,) * (len(right.dims) - 1), "f"), 1)
    made = matmul(op, left, right)
    if beta == 0:
        return op.trace.map(f"x * {number(alpha)}", made, dtype=op.dtype)
    join = "x + y" if alpha == beta == 1 else f"x * {number(beta)} + y * {number(alpha)}"
    return op.trace.map(join, x, made, dtype=op.dtype)


@operator("aten.einsum")
def einsum(op: Operation, equation: str, tensors: Sequence[View], **_: Any) -> View:
    """What an equation says, in any order; dimensions under dots are aligned from the right."""
    shapes = [tensor.shape for tensor in tensors]
    inputs, output, _shapes = parse_einsum_input([equation, *shapes], shapes=True)
    terms = inputs.split(",")
    for tensor, term in zip(tensors, terms, strict=True):
        if "..." not in equation and len({*term}) == len(term):
            op.trace.vote(tensor, [c.lower() for c in term], 1)
    reads = [Indexed(x, tuple(map(ord, term))) for x, term in zip(tensors, terms, strict=True)]
    return op.trace.einsum(reads, [*map(ord, output)], dtype=op.dtype)


@operator("aten._grouped_mm")
def grouped_mm(op: Operation, x: View, mat2: View, offs: View | None = None, **_: Any) -> View:
    """Rows times the matrix of their group, by where the groups of rows end."""
    if offs is None or len(x.dims) != 2 or len(mat2.dims) != 3:
        raise op.refuse("is imported for groups of rows: a matrix, matrices and where groups end")
    return grouped_product(op.trace, x, mat2, group_of(op.trace, offs, x.shape[0]), op.dtype)


def _per_dimension(given: int | Sequence[int], count: int) -> list[int]:
    """A number for each dimension, where one stands for all."""
    many = [given] if isinstance(given, int) else [*given]
    return many * count if len(many) == 1 else many


@operator("aten.convolution")
def convolution(
    op: Operation,
    x: View,
    weight: View,
    bias: View | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
    **_: Any,
) -> View:
    """Sums of products over windows, and over the channels of each group."""
    first, window = weight.shape[0], weight.shape[2:]
    rank = len(window)
    given = (_per_dimension(each, rank) for each in (stride, padding, dilation))
    every = zip(window, op.shape[2:], *given, strict=True)
    kernels = split_in_two(op.trace, weight, 0, (groups, first // groups))
    if transposed:  # an image is read where one of its elements is added to this one
        if kernels.shape[1:3] != (1, 1):
            kernels = op.trace.transpose(kernels, (0, 2, 1, *range(3, rank + 3)))
        along = [Along((m, k), (1, -d), p, s, 0) for k, m, s, p, d in every]
    else:
        along = [Along((m, k), (s, d), -p, 1, 0) for k, m, s, p, d in every]
    made = convolved(op.trace, x, kernels, along, op.dtype)
    if bias is None:
        return made
    wide = op.trace.reshape(bias, (*bias.shape, *(1,) * rank))
    return op.trace.map("x + y", made, wide, dtype=op.dtype)


@operator("aten.unfold")
def unfold(op: Operation, x: View, dimension: int, size: int, step: int) -> View:
    """The windows along a dimension, what is in them last."""
    if not x.dims:
        return op.trace.unsqueeze(x, 0)
    place = dimension % len(x.dims)
    seen = op.trace.seen(x, {place: frames(around(x.shape[place], 0, 0), size, step)})
    order = [k for k in range(len(seen.dims)) if k != place + 1]
    return op.trace.transpose(seen, [*order, place + 1])


@operator("aten.im2col")
def im2col(
    op: Operation,
    x: View,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> View:
    """What every window of images shows, as a column."""
    given = zip(x.shape[-2:], kernel_size, stride, dilation, padding, strict=True)
    along = [frames(around(n, p, p), k, s, d) for n, k, s, d, p in given]
    seen, inside = windows(op.trace, x, along)
    order = [*range(len(x.dims) - 2), *inside, *(place - 1 for place in inside)]
    return op.trace.reshape(op.trace.transpose(seen, order), op.shape)


@operator(
    "aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d", "aten.max_pool2d_with_indices",
    "aten.max_pool3d_with_indices", "aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d",
)  # fmt: skip
def pool(
    op: Operation,
    x: View,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> View | list[View]:
    """The mean of every window, or the largest element, without saying where it was."""
    del ceil_mode  # how many windows there are is known
    rank = int(op.short.partition("_pool")[2][0])
    is_max = op.short.startswith("max")
    sizes, before = _per_dimension(kernel_size, rank), _per_dimension(padding, rank)
    steps = _per_dimension(stride, rank) if stride else sizes
    spreads = _per_dimension(dilation, rank)
    agg, shape = ("max" if is_max else "sum"), op.shape[-rank:]
    beside = neutral(agg, x.dtype)
    assert isinstance(beside, int | float)  # noqa: S101 - complex numbers have no order
    given = zip(shape, sizes, steps, spreads, before, strict=True)
    along = [Along((m, k), (s, d), -p, 1, beside) for m, k, s, d, p in given]
    seen, inside = windows(op.trace, x, along)
    if len(x.dims) == rank + 2:
        op.trace.vote(seen, ("b", "c", *"zkyjxi"[6 - 2 * rank :]), 1)
    if is_max:
        largest = op.trace.reduce(seen, inside, agg, dtype=op.dtype)
        return [largest] if op.short.endswith("indices") else largest
    ends = [p if count_include_pad else 0 for p in before]
    every = zip(along, x.shape[-rank:], ends, strict=True)
    counts = divisor_override or _counts(op, [(each, n, end) for each, n, end in every])
    if isinstance(counts, int):
        return op.trace.reduce(seen, inside, agg, join=f"x / {counts}", dtype=op.dtype)
    sums = op.trace.reduce(op.wide(seen), inside, agg)
    return op.trace.map("x / y", sums, counts, dtype=op.dtype)


def _counts(op: Operation, along: Sequence[tuple[Along, int, int]]) -> View | int:
    """How many elements each window has, of dimensions of a size with so much at both ends."""
    counts = op.trace.number(1, "int64")
    for each, size, end in along:
        first = op.trace.iota(each.sizes[0], "int64", each.offset, each.times[0])
        count = f"min(x, {size + end - each.sizes[1]}) - max(x, {-end}) + {each.sizes[1]}"
        own = op.trace.map(count, first)
        counts = op.trace.map("x * y", op.trace.unsqueeze(counts, len(counts.dims)), own)
    return counts if counts.number is None else int(counts.number.real)


MOST_TOLD = 2**24
"""Of how many elements a mask is computed at most, to tell whether every query sees a key."""


@operator("aten.scaled_dot_product_attention")
def attention(
    op: Operation,
    query: View,
    key: View,
    value: View,
    attn_mask: View | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> View:
    """The softmax of queries times keys, times values."""
    if dropout_p:
        raise op.refuse("draws random numbers for dropout; put the module in evaluation mode")
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        key, value = (_shared(op, each, times) for each in (key, value))
    rank = len(op.shape)
    batch = tuple(range(rank - 2))
    s, t, d, e = rank, rank + 1, rank + 2, rank + 3

    def read(array: View, *last: int) -> Indexed:
        return Indexed(array, (*batch[len(batch) + 2 - len(array.dims) :], *last))

    products = op.trace.einsum([read(query, s, d), read(key, t, d)], (*batch, s, t))
    by = 1 / sqrt(query.shape[-1]) if scale is None else scale
    scores = op.trace.map(f"x * {number(float(by))}", op.wide(products))
    scores = _masked(op, scores, attn_mask, is_causal)
    weights = softmax_of(op, scores, rank - 1, op.dtype)
    if rank == 4:
        heads = "h" if len(key.dims[1]) == 1 else None  # else each is shared by some of the queries
        for array in (query, key, value):
            op.trace.vote(array, ("b", heads, "s", "d"))
        op.trace.vote(products, ("b", ("h", "g"), None, None))
    reads = [read(weights, s, t), read(value, t, e)]
    result = op.trace.einsum(reads, (*batch, s, e), dtype=op.dtype)
    return result if attn_mask is None else _seen_only(op, result, attn_mask)


def _seen_only(op: Operation, result: View, mask: View) -> View:
    """Zeros for the queries that a mask lets see no key, as torch has it."""
    is_truth = mask.dtype == BOOL
    value = op.trace.formula(mask) if prod(mask.shape) <= MOST_TOLD else None
    if value is not None and _all_see(value, mask.shape, mask.dtype):
        return result
    seen = op.trace.reduce(mask, [len(mask.dims) - 1], "any" if is_truth else "max", keep=True)
    seen = seen if is_truth else op.trace.map("x > -inf", seen)
    return op.trace.map("where(x, y, 0)", seen, result, dtype=op.dtype)


@lru_cache(maxsize=64)
def _all_see(value: Expr, shape: tuple[int, ...], dtype: DType) -> bool:
    """Whether a mask from indices alone lets every query see a key."""
    known = evaluated(shape, value, dtype)
    return bool((known if dtype == BOOL else known > -inf).any(-1).all())


def _shared(op: Operation, array: View, times: int) -> View:
    """Heads that are each shared by several of the queries."""
    *batch, heads, rows, width = array.shape
    apart = op.trace.unsqueeze(array, len(batch) + 1)
    wide = op.trace.expand(apart, (*batch, heads, times, rows, width))
    return op.trace.reshape(wide, (*batch, heads * times, rows, width))


def _masked(op: Operation, scores: View, mask: View | None, is_causal: bool) -> View:
    if is_causal:
        rows, columns = (op.trace.iota(size, "int64") for size in scores.shape[-2:])
        mask = op.trace.map("y <= x", op.trace.unsqueeze(rows, 1), columns)
    if mask is None or (mask.dtype == BOOL and mask.number is True):
        return scores
    if mask.dtype == BOOL:
        return op.trace.map("where(x, y, -inf)", mask, scores)
    return op.trace.map("x + y", scores, op.trace.cast(mask, scores.dtype))

"""Attention, as the patterns of graphs know it."""

from __future__ import annotations

from functools import lru_cache
from math import inf, prod, sqrt
from typing import TYPE_CHECKING

from eindecomp.frontends.formulas import evaluated
from eindecomp.frontends.join import Read
from eindecomp.frontends.torch.operators.normalization import softmax_of
from eindecomp.frontends.torch.registry import number, operator
from eindecomp.lang.dtypes import BOOL

if TYPE_CHECKING:
    from eindecomp.frontends.torch.registry import Operation
    from eindecomp.frontends.views import View
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.scalar import Expr

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

    def read(array: View, *last: int) -> Read:
        return Read(array, (*batch[len(batch) + 2 - len(array.dims) :], *last))

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
    found = op.trace.einsum(reads, (*batch, s, e), dtype=op.dtype)
    return found if attn_mask is None else _seen_only(op, found, attn_mask)


def _seen_only(op: Operation, found: View, mask: View) -> View:
    """Zeros for the queries that a mask lets see no key, as torch has it."""
    is_truth = mask.dtype == BOOL
    value = op.trace.formula(mask) if prod(mask.shape) <= MOST_TOLD else None
    if value is not None and _all_see(value, mask.shape, mask.dtype):
        return found
    seen = op.trace.reduce(mask, [len(mask.dims) - 1], "any" if is_truth else "max", keep=True)
    seen = seen if is_truth else op.trace.map("x > -inf", seen)
    return op.trace.map("where(x, y, 0)", seen, found, dtype=op.dtype)


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

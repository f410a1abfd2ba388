"""The Triton kernels of `decoding`: a few rows of a matrix, or one share of a head's keys, each.

Constants that Triton compiles in are written in capitals: how many elements keys and values have,
and the powers of two, at least 16, that these and the rows are computed as.
"""
# pyright: basic
# ruff: noqa: N803

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

ROW_CONFIGS = [
    triton.Config({"ROWS": rows, "BLOCK": block}, num_warps=warps)
    for rows, block, warps in (
        (1, 1024, 2), (1, 2048, 4), (1, 4096, 4), (1, 4096, 8), (2, 1024, 4), (2, 2048, 8),
        (4, 512, 4),
    )
]  # fmt: skip


@triton.jit
def take_turn(OVERLAP: tl.constexpr):
    """Wait until all that came before is done, and let the next kernel be launched.

    In this order, so that a kernel finds done whatever came before the one before it: those that
    Inductor writes wait only for that one.
    """
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()


@triton.jit
def _weights(start, at, there, length):
    """Some columns of some rows of the matrix, each of which is read once."""
    mask = there[:, None] & (at < length)[None, :]
    return tl.load(start + at[None, :], mask=mask, other=0.0, eviction_policy="evict_first")


@triton.jit
def _terms(x, at, length, weights):
    vector = tl.load(x + at, mask=at < length, other=0.0).to(tl.float32)
    return weights.to(tl.float32) * vector[None, :]


@triton.jit
def row_kernel(
    x, matrix, out, rows, length, stride,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """The products of some rows with a vector, summed in float32.

    Where that is allowed, the first weights are fetched while the vector is still being made.
    """
    own = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = own < rows
    start = matrix + own[:, None].to(tl.int64) * stride
    at = tl.arange(0, BLOCK)
    if not EARLY:
        take_turn(OVERLAP)
    weights = _weights(start, at, there, length)
    if EARLY:
        take_turn(OVERLAP)
    total = _terms(x, at, length, weights)
    for first in range(BLOCK, length, BLOCK):
        weights = _weights(start, first + at, there, length)
        total += _terms(x, first + at, length, weights)
    sums = tl.sum(total, 1)
    tl.store(out + own, sums.to(out.dtype.element_ty), mask=there)


tuned_row_kernel = triton.autotune(configs=ROW_CONFIGS, key=["rows", "length"])(row_kernel)


@triton.jit
def _attend(
    q, k, v, length, share, shares, scale, k_key, v_key,
    ROWS: tl.constexpr, SIZE: tl.constexpr, VALUE: tl.constexpr,
    SIZES: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The share of one program: the weighted mean of its values, and its log-sum-exp."""
    each = tl.cdiv(tl.cdiv(length, shares), BLOCK) * BLOCK
    first = share * each
    last = tl.minimum(first + each, length)
    along = tl.arange(0, SIZES)
    values = tl.arange(0, VALUES)
    largest = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    product = tl.zeros([ROWS, VALUES], tl.float32)
    for start in range(first, last, BLOCK):
        at = start + tl.arange(0, BLOCK)
        there = at < last
        keys = tl.load(
            k + at[None, :].to(tl.int64) * k_key + along[:, None],
            mask=there[None, :] & (along < SIZE)[:, None],
            other=0.0,
        )
        scores = tl.dot(q, keys, input_precision="ieee") * scale
        scores = tl.where(there[None, :], scores, -float("inf"))
        above = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - above[:, None])
        shrink = tl.exp2(largest - above)
        read = tl.load(
            v + at[:, None].to(tl.int64) * v_key + values[None, :],
            mask=there[:, None] & (values < VALUE)[None, :],
            other=0.0,
        )
        weighted = tl.dot(weights.to(read.dtype), read, input_precision="ieee")
        product = product * shrink[:, None] + weighted
        total = total * shrink + tl.sum(weights, 1)
        largest = above
    is_empty = total == 0
    total = tl.where(is_empty, 1.0, total)
    product = product / total[:, None]
    lse = tl.where(is_empty, -float("inf"), (largest + tl.log2(total)) * 0.6931471805599453)
    return product, lse


@triton.jit
def decode_kernel(
    q, q_batch, q_head, q_row,
    k0, k0_batch, k0_head, k0_key, v0, v0_batch, v0_head, v0_key,
    n0, n0_batch, n0_head, keys0, scale0, shares0,
    k1, k1_batch, k1_head, k1_key, v1, v1_batch, v1_head, v1_key,
    n1, n1_batch, n1_head, keys1, scale1, shares1,
    out, lse, heads, rows,
    HAS_N0: tl.constexpr, HAS_N1: tl.constexpr, TWO: tl.constexpr, OVERLAP: tl.constexpr,
    ROWS: tl.constexpr, SIZE: tl.constexpr, VALUE: tl.constexpr,
    SIZES: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One share of the keys of one head, of the first part or of the second."""
    take_turn(OVERLAP)
    program = tl.program_id(0)
    at_share = tl.program_id(1)
    b = (program // heads).to(tl.int64)
    h = (program % heads).to(tl.int64)
    row = tl.arange(0, ROWS)
    along = tl.arange(0, SIZES)
    values = tl.arange(0, VALUES)
    queries = tl.load(
        q + b * q_batch + h * q_head + row[:, None] * q_row + along[None, :],
        mask=(row < rows)[:, None] & (along < SIZE)[None, :],
        other=0.0,
    )
    k = k0 + b * k0_batch + h * k0_head
    v = v0 + b * v0_batch + h * v0_head
    length = keys0
    if HAS_N0:
        length = tl.minimum(tl.load(n0 + b * n0_batch + h * n0_head), keys0)
    share, shares, scale, k_key, v_key = at_share, shares0, scale0, k0_key, v0_key
    if TWO:
        # One loop for both parts: two would need twice the shared memory.
        second = at_share >= shares0
        length1 = keys1
        if HAS_N1:
            length1 = tl.minimum(tl.load(n1 + b * n1_batch + h * n1_head), keys1)
        k = tl.where(second, k1 + b * k1_batch + h * k1_head, k)
        v = tl.where(second, v1 + b * v1_batch + h * v1_head, v)
        length = tl.where(second, length1, length)
        share = tl.where(second, at_share - shares0, at_share)
        shares = tl.where(second, shares1, shares0)
        scale = tl.where(second, scale1, scale0)
        k_key = tl.where(second, k1_key, k0_key)
        v_key = tl.where(second, v1_key, v0_key)
    product, total = _attend(
        queries, k, v, tl.maximum(length, 0), share, shares, scale, k_key, v_key,
        ROWS, SIZE, VALUE, SIZES, VALUES, BLOCK,
    )  # fmt: skip
    at = (program.to(tl.int64) * tl.num_programs(1) + at_share) * rows
    tl.store(lse + at + row, total, mask=row < rows)
    tl.store(
        out + (at + row[:, None]) * VALUE + values[None, :],
        product,
        mask=(row < rows)[:, None] & (values < VALUE)[None, :],
    )


@triton.jit
def merge_kernel(
    parts, lses, out, lse, shares, rows,
    SHARES: tl.constexpr, VALUE: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """One row of one head: the mean of all programs' results, weighted by their log-sum-exps."""
    take_turn(OVERLAP)
    program = tl.program_id(0)
    first = (program // rows).to(tl.int64) * shares
    row = program % rows
    values = tl.arange(0, VALUES)
    every = tl.arange(0, SHARES)
    scores = tl.load(lses + (first + every) * rows + row, mask=every < shares, other=-float("inf"))
    largest = tl.max(scores, 0)
    base = tl.where(largest == -float("inf"), 0.0, largest)
    total = tl.sum(tl.exp(scores - base), 0)
    product = tl.zeros([VALUES], tl.float32)
    for start in range(0, shares, BLOCK):
        share = start + tl.arange(0, BLOCK)
        at = (first + share) * rows + row
        weight = tl.exp(tl.load(lses + at, mask=share < shares, other=-float("inf")) - base)
        part = tl.load(
            parts + at[:, None] * VALUE + values[None, :],
            mask=(share < shares)[:, None] & (values < VALUE)[None, :],
            other=0.0,
        )
        product += tl.sum(part * weight[:, None], 0)
    is_empty = total == 0
    total = tl.where(is_empty, 1.0, total)
    tl.store(lse + program, tl.where(is_empty, -float("inf"), base + tl.log(total)))
    tl.store(out + program.to(tl.int64) * VALUE + values, product / total, mask=values < VALUE)

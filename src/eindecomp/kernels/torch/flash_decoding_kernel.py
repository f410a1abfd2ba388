"""The Triton kernel of `flash_decoding`: one share of the keys of one head for each program.

Constants that Triton compiles in are written in capitals: how many rows, elements of a head and
elements of a value there are at most (powers of two), and how many there are.
"""
# pyright: basic
# ruff: noqa: N803

import triton
import triton.language as tl


@triton.jit
def _attend(
    q, k, v, length, share, shares, scale, k_key, k_size, v_key, v_size,
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
            k + at[None, :].to(tl.int64) * k_key + along[:, None] * k_size,
            mask=there[None, :] & (along < SIZE)[:, None],
            other=0.0,
        )
        scores = tl.dot(q, keys, input_precision="ieee") * scale
        scores = tl.where(there[None, :], scores, -float("inf"))
        above = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - above[:, None])
        shrink = tl.exp2(largest - above)
        there_v = there[:, None] & (values < VALUE)[None, :]
        read = tl.load(
            v + at[:, None].to(tl.int64) * v_key + values[None, :] * v_size,
            mask=there_v,
            other=0.0,
        )
        product = product * shrink[:, None] + tl.dot(
            weights.to(read.dtype), read, input_precision="ieee"
        )
        total = total * shrink + tl.sum(weights, 1)
        largest = above
    is_empty = total == 0
    total = tl.where(is_empty, 1.0, total)
    product = product / total[:, None]
    lse = tl.where(is_empty, -float("inf"), (largest + tl.log2(total)) * 0.6931471805599453)
    return product, lse


@triton.jit
def _attend_part(
    q, b, h, k, k_batch, k_head, k_key, k_size, v, v_batch, v_head, v_key, v_size,
    n, n_batch, n_head, keys, scale, share, shares, HAS_N: tl.constexpr,
    ROWS: tl.constexpr, SIZE: tl.constexpr, VALUE: tl.constexpr,
    SIZES: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The share of one program, of the keys of a part that count."""
    length = keys
    if HAS_N:
        length = tl.maximum(tl.minimum(tl.load(n + b * n_batch + h * n_head), keys), 0)
    return _attend(
        q, k + b * k_batch + h * k_head, v + b * v_batch + h * v_head,
        length, share, shares, scale, k_key, k_size, v_key, v_size,
        ROWS, SIZE, VALUE, SIZES, VALUES, BLOCK,
    )  # fmt: skip


@triton.jit
def decode_kernel(
    q, q_batch, q_head, q_row, q_size,
    k0, k0_batch, k0_head, k0_key, k0_size, v0, v0_batch, v0_head, v0_key, v0_size,
    n0, n0_batch, n0_head, keys0, scale0, shares0,
    k1, k1_batch, k1_head, k1_key, k1_size, v1, v1_batch, v1_head, v1_key, v1_size,
    n1, n1_batch, n1_head, keys1, scale1, shares1,
    out, lse, heads, rows,
    HAS_N0: tl.constexpr, HAS_N1: tl.constexpr, TWO: tl.constexpr,
    ROWS: tl.constexpr, SIZE: tl.constexpr, VALUE: tl.constexpr,
    SIZES: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One share of the keys of one head."""
    program = tl.program_id(0)
    share = tl.program_id(1)
    b = (program // heads).to(tl.int64)
    h = (program % heads).to(tl.int64)
    row = tl.arange(0, ROWS)
    along = tl.arange(0, SIZES)
    values = tl.arange(0, VALUES)
    queries = tl.load(
        q + b * q_batch + h * q_head + row[:, None] * q_row + along[None, :] * q_size,
        mask=(row < rows)[:, None] & (along < SIZE)[None, :],
        other=0.0,
    )
    if TWO:
        if share < shares0:
            product, total = _attend_part(
                queries, b, h, k0, k0_batch, k0_head, k0_key, k0_size,
                v0, v0_batch, v0_head, v0_key, v0_size, n0, n0_batch, n0_head,
                keys0, scale0, share, shares0, HAS_N0, ROWS, SIZE, VALUE, SIZES, VALUES, BLOCK,
            )  # fmt: skip
        else:
            product, total = _attend_part(
                queries, b, h, k1, k1_batch, k1_head, k1_key, k1_size,
                v1, v1_batch, v1_head, v1_key, v1_size, n1, n1_batch, n1_head,
                keys1, scale1, share - shares0, shares1, HAS_N1,
                ROWS, SIZE, VALUE, SIZES, VALUES, BLOCK,
            )  # fmt: skip
    else:
        product, total = _attend_part(
            queries, b, h, k0, k0_batch, k0_head, k0_key, k0_size,
            v0, v0_batch, v0_head, v0_key, v0_size, n0, n0_batch, n0_head,
            keys0, scale0, share, shares0, HAS_N0, ROWS, SIZE, VALUE, SIZES, VALUES, BLOCK,
        )  # fmt: skip
    at = (program.to(tl.int64) * tl.num_programs(1) + share) * rows
    tl.store(lse + at + row, total, mask=row < rows)
    tl.store(
        out + (at + row[:, None]) * VALUE + values[None, :],
        product,
        mask=(row < rows)[:, None] & (values < VALUE)[None, :],
    )

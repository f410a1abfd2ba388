"""The Triton kernel of `row_products`: a few rows of a matrix by a vector for each program."""
# pyright: basic
# ruff: noqa: N803

import triton
import triton.language as tl

from eindecomp.kernels.torch.overlap_kernel import take_turn

CONFIGS = [
    triton.Config({"ROWS": rows, "BLOCK": block}, num_warps=warps)
    for rows, block, warps in (
        (1, 1024, 2), (1, 2048, 4), (1, 4096, 4), (1, 4096, 8), (2, 1024, 4), (2, 2048, 8),
        (4, 512, 4),
    )
]  # fmt: skip


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
def multiply(
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
    found = tl.sum(total, 1)
    tl.store(out + own, found.to(out.dtype.element_ty), mask=there)


tuned = triton.autotune(configs=CONFIGS, key=["rows", "length"])(multiply)

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
def multiply(
    x, matrix, out, rows, length, stride,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """The products of some rows with a vector, summed in float32."""
    take_turn(OVERLAP)
    own = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = own < rows
    start = matrix + own[:, None].to(tl.int64) * stride
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in range(0, length, BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = at < length
        vector = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        part = tl.load(
            start + at[None, :],
            mask=there[:, None] & inside[None, :],
            other=0.0,
            eviction_policy="evict_first",  # it is read once
        )
        total += part.to(tl.float32) * vector[None, :]
    found = tl.sum(total, 1)
    tl.store(out + own, found.to(out.dtype.element_ty), mask=there)


tuned = triton.autotune(configs=CONFIGS, key=["rows", "length"])(multiply)

"""One row by a matrix, read once at the speed of memory: what a token takes when it is decoded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eindecomp.kernels.torch.overlap import is_steady, launch_options

_TYPES = frozenset({torch.float16, torch.bfloat16, torch.float32})


def suits(x: Tensor, matrix: Tensor) -> bool:
    """Whether a vector and the rows of a matrix are multiplied here: on a GPU, as they lie."""
    return (
        x.device.type == "cuda"
        and x.dtype == matrix.dtype
        and x.dtype in _TYPES
        and matrix.stride(1) == 1
        and _has_triton()
    )


def _has_triton() -> bool:
    try:
        import triton  # noqa: F401 # pyright: ignore[reportUnusedImport]
    except ImportError:
        return False
    return True


@torch.library.custom_op(
    "eindecomp::row_product", mutates_args=(), schema="(Tensor x, Tensor matrix) -> Tensor"
)
def row_product(x: Tensor, matrix: Tensor) -> Tensor:
    """The products of the rows of a matrix with a vector, [rows], in the vector's type."""
    from eindecomp.kernels.torch import row_product_kernel

    kernels: Any = row_product_kernel
    rows, length = matrix.shape
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    x = x.contiguous()

    def grid(config: dict[str, int]) -> tuple[int]:
        return (-(-rows // config["ROWS"]),)

    with torch.cuda.device_of(x):
        options = {"EARLY": is_steady(matrix), **launch_options(x.device)}
        kernels.tuned[grid](x, matrix, out, rows, length, matrix.stride(0), **options)
    return out


@row_product.register_fake
def _(x: Tensor, matrix: Tensor) -> Tensor:  # pyright: ignore[reportUnusedFunction]
    return x.new_empty(matrix.shape[0])

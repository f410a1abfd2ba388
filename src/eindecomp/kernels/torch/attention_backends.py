"""The kernels that compute attention, each with the log-sum-exp of its scores.

They are called by their own names rather than through `scaled_dot_product_attention`, so that a
choice among them survives tracing. All take queries [b, h, s, e], keys [b, i, t, e] and values
[b, i, t, d] with i dividing h, and yield [b, h, s, d] and, in at least float32, [b, h, s].
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from eindecomp.kernels.torch.decoding import dense
from eindecomp.kernels.torch.fastest import fastest_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Outcome = tuple[Tensor, Tensor]

aten: Any = torch.ops.aten
ALIGNMENT = 8
"""The sizes of heads, and the lengths of biases, that kernels for CUDA take: multiples of this."""


class Backend(Enum):
    """Who computes attention."""

    DECODE = "our own split of few queries' keys over many multiprocessors"
    FLASH = "FlashAttention"
    CUDNN = "cuDNN"
    EFFICIENT = "the memory-efficient kernel, which takes a bias"
    CPU = "the blocked kernel for CPUs"
    MATH = "matrix products and a softmax, which store the scores"

    @property
    def groups_heads(self) -> bool:
        """Whether query heads can share a head of keys without a copy."""
        return self in (Backend.DECODE, Backend.FLASH, Backend.CUDNN)


def compute(
    backend: Backend,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    bias: Tensor | None = None,
    seen: Tensor | None = None,
    *,
    causal: bool = False,
) -> Outcome:
    """Attention and the log-sum-exp; a causal one lets the last query see all keys.

    With fewer queries than keys only `FLASH` does that. A row without any key is undefined. Where
    `seen` is False a key is hidden. Kernels of torch's add -∞ to its score: NaN and ∞ stay NaN.
    """
    if backend is Backend.MATH:
        return _math(q, k, v, scale, bias, seen, causal=causal)
    if seen is not None:
        bias = _as_bias(seen, q) if bias is None else bias.masked_fill(~seen, -torch.inf)
    match backend:
        case Backend.FLASH:
            return _flash(q, k, v, scale, causal=causal)
        case Backend.CUDNN:
            return _cudnn(q, k, v, scale, causal=causal)
        case Backend.EFFICIENT:
            return _efficient(q, k, v, scale, bias, causal=causal)
        case _:
            return _cpu(q, k, v, scale, bias, causal=causal)


def faster(q: Tensor, k: Tensor, v: Tensor, scale: float, *, causal: bool) -> Backend:
    """Whether cuDNN or FlashAttention takes less time for operands like these."""

    def way(backend: Backend) -> Callable[[Tensor, Tensor, Tensor], Outcome]:
        return lambda q, k, v: compute(backend, q, k, v, scale, causal=causal)

    if 0 in (q.numel(), k.numel()):
        return Backend.FLASH
    ways = {backend: way(backend) for backend in (Backend.CUDNN, Backend.FLASH)}
    # One sequence tells enough, and takes little memory.
    return fastest_on(("attention", causal), ways, [x[:1] for x in (q, k, v)])


def _flash(q: Tensor, k: Tensor, v: Tensor, scale: float, *, causal: bool) -> Outcome:
    size = v.shape[-1]
    q, k, v = (_aligned(x) for x in (q, k, v))
    found = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=scale)
    return found[0][..., :size], found[1]


def _cudnn(q: Tensor, k: Tensor, v: Tensor, scale: float, *, causal: bool) -> Outcome:
    size = v.shape[-1]
    q, k, v = (_aligned(x) for x in (q, k, v))
    found = aten._scaled_dot_product_cudnn_attention(
        q, k, v, None, True, 0.0, causal, False, scale=scale
    )
    return found[0][..., :size], found[1].reshape(q.shape[:-1])


def _efficient(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None, *, causal: bool
) -> Outcome:
    size = v.shape[-1]
    heads, rows = q.shape[1], q.shape[2]
    q, k, v = (_aligned(x) for x in (q, k, v))
    k, v = (x.expand(-1, heads, -1, -1) for x in (k, v))
    if bias is not None:
        bias = _aligned(bias)[..., : k.shape[2]].expand(q.shape[0], heads, rows, -1)
    found = aten._scaled_dot_product_efficient_attention(
        q, k, v, bias, True, 0.0, causal, scale=scale
    )
    return found[0][..., :size], found[1][..., :rows]


def _cpu(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None, *, causal: bool
) -> Outcome:
    q, k, v = (dense(x) for x in (q, k, v))
    k, v = (x.expand(-1, q.shape[1], -1, -1) for x in (k, v))
    return aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, causal, attn_mask=bias, scale=scale
    )


def _math(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    bias: Tensor | None,
    seen: Tensor | None,
    *,
    causal: bool,
) -> Outcome:
    wide = torch.promote_types(q.dtype, torch.float32)
    batch, heads, rows, size = q.shape
    shared, keys = k.shape[1:3]
    folded = q.reshape(batch, shared, heads // shared * rows, size).to(wide)
    scores = (folded @ k.to(wide).mT * scale).reshape(batch, heads, rows, keys)
    if causal:
        seen = seen_up_to(rows, keys, 0, q.device)
    if bias is not None:
        scores = scores + bias
    if seen is not None:
        scores = scores.masked_fill(~seen, -torch.inf)
    weights = scores.softmax(-1)
    product = weights.reshape(batch, shared, heads // shared * rows, keys) @ v.to(wide)
    return product.reshape(batch, heads, rows, v.shape[3]).to(q.dtype), scores.logsumexp(-1)


def seen_up_to(queries: int, keys: int, offset: int, device: torch.device) -> Tensor:
    """Where key index <= query index + offset."""
    rows = torch.arange(queries, device=device).unsqueeze(1) + offset
    return torch.arange(keys, device=device) <= rows


def _as_bias(seen: Tensor, q: Tensor) -> Tensor:
    """What hides keys when it is added to scores, in the type of the queries."""
    return torch.zeros_like(seen, dtype=q.dtype).masked_fill(~seen, -torch.inf)


def _aligned(x: Tensor) -> Tensor:
    """What is padded with zeros, which change neither products nor the values before them."""
    missing = -x.shape[-1] % ALIGNMENT
    return pad(x, (0, missing)) if missing else dense(x)

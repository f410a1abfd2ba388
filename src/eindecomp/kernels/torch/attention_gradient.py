"""The gradient of attention on tiles of torch's tensors, by kernels that never store scores.

They compute weights again from the log-sum-exp of the forward pass, whichever kernel has made it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from eindecomp.kernels.torch.attention import Backend, added, aten, choices_for, padded
from eindecomp.kernels.torch.attention_layout import (
    PartTile,
    arrange,
    conditions,
    is_causal,
    lay_out,
    row_labels,
)

if TYPE_CHECKING:
    from eindecomp.graph.patterns.attention import Attention

_ROWS = 32
"""The memory-efficient kernel takes so many numbers of a log-sum-exp at once."""


def differentiate(
    one: Attention,
    q: Tensor,
    tile: PartTile,
    result: tuple[Tensor, Tensor],
    given: Tensor,
    start: int = 0,
) -> list[Tensor]:
    """What queries, keys and values get, in their labels, where the result gets what is given.

    The result and its log-sum-exp are those of `attend`; what is given has the result's labels.
    """
    [part], mask = one.parts, one.parts[0].mask
    layout = lay_out(one, (part,), q, (tile,), True)
    causal = mask is not None and is_causal(one, part) and mask.offset + start == 0
    causal = causal and layout.sizes[one.queries[0]] == layout.sizes[part.key]
    kernels = (Backend.CUDNN, Backend.FLASH, Backend.EFFICIENT)
    takes = kernels if causal is (mask is not None) else kernels[2:]
    backend = next((x for x in choices_for(one, part, q, tile) if x in takes), Backend.CPU)
    layout = lay_out(one, (part,), q, (tile,), backend.groups_heads)
    bias, seen = (None, None) if causal else conditions(layout, part, tile, start)
    q, k, v = layout.queries(q), layout.keys(part, tile.k), layout.values(part, tile.v)
    rows, keys = (layout.heads, one.queries), (layout.shared, (part.key,))
    if not backend.groups_heads:  # what heads share is summed at the end
        k, v = (x.expand(-1, q.shape[1], -1, -1) for x in (k, v))
        keys = (layout.heads, (part.key,))
    groups = (layout.batch, *rows, one.values)
    labels = one.output.labels
    out, given = (arrange(x, labels, groups, layout.sizes) for x in (result[0], given))
    lse = arrange(result[1], row_labels(one), groups[:-1], layout.sizes).contiguous()
    added_scores = added(backend, q, k, bias, seen)
    made = _by_kernel(backend, (q, k, v), (given, out), lse, added_scores, part.scale, causal)
    places = (
        (rows, one.inner, one.q.labels),
        (keys, one.inner, part.k.labels),
        (keys, one.values, part.v.labels),
    )
    return [layout.spread(x, (*a, b), c) for x, (a, b, c) in zip(made, places, strict=True)]


def _by_kernel(
    backend: Backend,
    operands: tuple[Tensor, Tensor, Tensor],
    results: tuple[Tensor, Tensor],
    lse: Tensor,
    bias: Tensor | None,
    scale: float,
    causal: bool,
) -> list[Tensor]:
    """The gradients of three operands, each [batch, heads, rows, size], from a result's two."""
    widest = max(x.shape[3] for x in operands)
    q, k, v, *others = (padded(x, widest) for x in (*operands, *results))
    # Kernels for CUDA read these two as if heads came after rows.
    grad, out = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in others)
    seed = torch.zeros((), dtype=torch.int64, device=q.device)  # there is no dropout
    ends = (q.shape[2], k.shape[2], 0.0, causal)
    if backend is Backend.FLASH:
        made = aten._scaled_dot_product_flash_attention_backward(
            grad, q, k, v, out, lse, None, None, *ends, seed, seed, scale=scale
        )
    elif backend is Backend.CUDNN:
        made = aten._scaled_dot_product_cudnn_attention_backward(
            grad, q, k, v, out, lse.unsqueeze(-1), seed, seed, None, None, None, *ends, scale=scale
        )
    elif backend is Backend.CPU:
        made = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, lse, 0.0, causal, attn_mask=bias, scale=scale
        )
    else:
        lse, wanted = pad(lse, (0, -lse.shape[2] % _ROWS), value=inf), [True, True, True, False]
        made = aten._scaled_dot_product_efficient_attention_backward(
            grad, q, k, v, bias, out, lse, seed, seed, 0.0, wanted, causal, scale=scale
        )
    return [x[..., : y.shape[3]] for x, y in zip(made, operands, strict=False)]

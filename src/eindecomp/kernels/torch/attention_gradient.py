"""The gradient of attention on tiles of torch's tensors, by kernels that never store scores.

They compute weights again from the log-sum-exp of the forward pass, whichever kernel has made it.
"""

from __future__ import annotations

from collections.abc import Mapping
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
)

if TYPE_CHECKING:
    from eindecomp.graph.patterns.attention_gradient import AttentionGradient
    from eindecomp.graph.patterns.terms import TensorRead

_PLAIN = (Backend.CUDNN, Backend.FLASH)
"""The kernels that take no mask but a causal one of as many queries as keys."""
_ROWS = 32
"""The memory-efficient kernel takes so many numbers of a log-sum-exp at once."""


def differentiate(
    gradient: AttentionGradient, given: Mapping[TensorRead, Tensor], tile: PartTile, start: int = 0
) -> list[Tensor]:
    """The results of a gradient, from tiles of what it reads; its sums are a log-sum-exp there.

    `start` is the index of the first query.
    """
    one, [part], q = gradient.attention, gradient.attention.parts, given[gradient.attention.q]
    mask, sizes = part.mask, lay_out(one, (part,), q, (tile,), True).sizes
    causal = mask is not None and is_causal(one, part) and mask.offset + start == 0
    causal = causal and sizes[one.queries[0]] == sizes[part.key]
    takes = (Backend.EFFICIENT, *(_PLAIN if causal is (mask is not None) else ()))
    backend = next((x for x in choices_for(one, part, q, tile) if x in takes), Backend.CPU)
    layout = lay_out(one, (part,), q, (tile,), backend.groups_heads)
    rows, keys = (layout.batch, layout.heads, one.queries), (layout.shared, (part.key,))
    keys = keys if backend.groups_heads else (layout.heads, (part.key,))
    reads = (gradient.adjoint, one.output)
    grad, out = (arrange(given[x], x.labels, (*rows, one.values), sizes) for x in reads)
    lse = arrange(given[gradient.total], gradient.total.labels, rows, sizes).contiguous()
    operands = layout.queries(q), layout.keys(part, tile.k), layout.values(part, tile.v)
    bias, seen = (None, None) if causal else conditions(layout, part, tile, start)
    bias, widest = added(backend, *operands[:2], bias, seen), max(x.shape[3] for x in operands)
    q, k, v, grad, out = (padded(x, widest) for x in (*operands, grad, out))
    k, v = (x if backend.groups_heads else x.expand(-1, q.shape[1], -1, -1) for x in (k, v))
    # Kernels for CUDA read these two as if heads came after rows.
    grad, out = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (grad, out))
    none, ends = None, (q.shape[2], k.shape[2], 0.0, causal)
    seeds = (torch.zeros((), dtype=torch.int64, device=q.device),) * 2  # of no dropout
    longer = pad(lse, (0, -lse.shape[2] % _ROWS), value=inf)
    efficient = (bias, out, longer, *seeds, 0.0, (True, True, True, False), causal)
    name, rest = {
        Backend.CPU: ("flash_attention_for_cpu", (out, lse, 0.0, causal)),
        Backend.FLASH: ("flash_attention", (out, lse, none, none, *ends, *seeds)),
        Backend.CUDNN: ("cudnn_attention", (out, lse[..., none], *seeds, none, none, none, *ends)),
        Backend.EFFICIENT: ("efficient_attention", efficient),
    }[backend]
    hidden = {"attn_mask": bias} if backend is Backend.CPU else {}
    function = getattr(aten, f"_scaled_dot_product_{name}_backward")
    made = function(grad, q, k, v, *rest, scale=part.scale, **hidden)
    orders = (*rows[1:], one.inner), (*keys, one.inner), (*keys, one.values)
    results: list[Tensor] = []
    for of, read, factor in gradient.results:
        factor = factor if of == 2 else factor / part.scale
        own = layout.spread(made[of][..., : operands[of].shape[3]], orders[of], read.labels)
        results.append(own if factor == 1 else own * factor)
    return results

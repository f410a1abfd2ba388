"""Attention on tiles of torch's tensors, by the kernel that suits them and never stores scores.

A part of the keys is computed by `attend_partial`: a result of its own and the log-sum-exp of its
scores, from which `merge` makes the whole. All are functional and can be traced.

A row that no key counts for is NaN, as 0/0 is where the graph's own vertices are computed; as a
part it weighs nothing: it is 0 and its log-sum-exp is -∞. Scores are not rounded to the type of the
queries, exponentials only before they are multiplied by values. A log-sum-exp is rounded like a
score: if scores are as large as x, parts weigh more or less than they should by about x · 6e-8 of
their weight in float32, which is much for scores of millions.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from eindecomp.kernels.torch.attention_layout import (
    PartTile,
    conditions,
    is_causal,
    key_counts,
    lay_out,
    may_hide_all,
    row_labels,
    seeing_rows,
    seen_up_to,
)
from eindecomp.kernels.torch.decoding import decode, dense

if TYPE_CHECKING:
    from eindecomp.graph.patterns.attention import Attention, KeyPart
    from eindecomp.lang.einsum import Labels

    Partial = tuple[Tensor, Tensor]

aten: Any = torch.ops.aten
ALIGNMENT = 8
"""The sizes of heads, and the lengths of biases, that kernels for CUDA take: multiples of this."""


class Backend(Enum):
    """The kernels that compute attention."""

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


_HALF = frozenset({torch.float16, torch.bfloat16})
_WIDEST = 256
"""The largest size of a head that FlashAttention and our own kernel take."""
_WIDEST_OF_CUDNN = 128
_FEW_QUERIES = 64
"""How many queries of one head of keys our own kernel takes."""
_MOST_PARTS = 2
"""How many parts our own kernel takes at once."""
_FEW_HEADS = 132
"""Fewer heads of keys than this leave multiprocessors idle if each is computed by one."""


def attend(
    attention: Attention,
    q: Tensor,
    tiles: Sequence[PartTile],
    *,
    start: int = 0,
    backend: Backend | None = None,
) -> Partial:
    """The result for a tile of queries, from all keys of every part, and its log-sum-exp.

    The labels are the result's, for the log-sum-exp but those of values. `start` is the index of
    the first query. `backend` is one of `backends`; a part that it cannot compute is computed as if
    none was given: by the first one that can.
    """
    pairs = [*zip(attention.parts, tiles, strict=True)]
    chosen = backend or backends(attention, q, tiles)[0]
    if chosen is Backend.DECODE and len(tiles) <= _MOST_PARTS:
        out, lse = _decode(attention, attention.parts, q, tiles)
    else:
        partials = [
            attend_partial(attention, part, q, tile, start=start, backend=backend)
            for part, tile in pairs
        ]
        out, lse = partials[0] if len(partials) == 1 else merge(attention, partials)
    if all(may_hide_all(part, tile, start) for part, tile in pairs):
        out = torch.where(_beside_values(attention, lse) == -torch.inf, torch.nan, out)
    return out.to(getattr(torch, attention.dtype.name)), lse


def attend_partial(
    attention: Attention,
    part: KeyPart,
    q: Tensor,
    tile: PartTile,
    *,
    start: int = 0,
    backend: Backend | None = None,
) -> Partial:
    """The result for a tile of queries as if its keys were all there are, and its log-sum-exp.

    The log-sum-exp has the result's labels but those of values, in their order.
    """
    choices = choices_for(attention, part, q, tile)
    if backend not in choices:
        backend = choices[0]
    if backend is Backend.DECODE:
        return _decode(attention, (part,), q, (tile,))
    layout = lay_out(attention, (part,), q, (tile,), backend.groups_heads)
    operands = (layout.queries(q), layout.keys(part, tile.k), layout.values(part, tile.v))
    mask = part.mask if is_causal(attention, part) else None
    if 0 in operands[0].shape or 0 in operands[1].shape:
        out, lse = _nothing(operands[0], operands[2], operands[0].shape[2])
    elif mask is not None:
        out, lse = _up_to_diagonal(backend, *operands, part.scale, mask.offset + start)
    else:
        bias, seen = conditions(layout, part, tile, start)
        out, lse = compute(backend, *operands, part.scale, bias, seen)
        rows = seeing_rows(bias, seen)
        if rows is not None:
            out = torch.where(rows, out, 0)
            lse = torch.where(rows.squeeze(-1), lse, -torch.inf)
    return layout.result(out), layout.rows(lse)


def merge(attention: Attention, partials: Sequence[Partial]) -> Partial:
    """The result and log-sum-exp over the keys of all parts."""
    lses = torch.stack([lse for _, lse in partials])
    maximum = lses.amax(0)
    # Where no part has a key any number will do, as long as nothing becomes NaN.
    base = torch.where(maximum == -torch.inf, 0, maximum)
    weights = (lses - base).exp()
    product = torch.zeros_like(partials[0][0], dtype=weights.dtype)
    for (out, _), weight in zip(partials, weights, strict=True):
        beside = _beside_values(attention, weight)
        product = product + torch.where(beside > 0, out.to(weight.dtype), 0) * beside
    total = weights.sum(0)
    beside = _beside_values(attention, total)
    out = torch.where(beside > 0, product / beside, 0)
    return out.to(partials[0][0].dtype), base + total.log()


def backends(attention: Attention, q: Tensor, tiles: Sequence[PartTile]) -> tuple[Backend, ...]:
    """The backends that can compute a result, probably the fastest first."""
    pairs = list(zip(attention.parts, tiles, strict=True))
    by_part = [choices_for(attention, part, q, tile) for part, tile in pairs]
    every = dict.fromkeys(backend for choices in by_part for backend in choices)
    if Backend.DECODE in every and not all(Backend.DECODE in choices for choices in by_part):
        del every[Backend.DECODE]
    return tuple(every)


def choices_for(
    attention: Attention, part: KeyPart, q: Tensor, tile: PartTile
) -> tuple[Backend, ...]:
    """The backends that can compute a part, probably the fastest first."""
    size = _extent(q, attention.q.labels, attention.inner)
    value_size = _extent(tile.v, part.v.labels, attention.values)
    same = size == value_size
    if q.device.type != "cuda":
        return (Backend.CPU, Backend.MATH) if same and q.device.type == "cpu" else (Backend.MATH,)
    suited: list[Backend] = []
    masked = part.mask is not None and not is_causal(attention, part)
    if q.dtype in _HALF and same and part.bias is None and not masked:
        many = _extent(q, attention.q.labels, attention.queries) > _FEW_QUERIES
        prefers_cudnn = many and size <= _WIDEST_OF_CUDNN and _is_fast_with_cudnn(q.device)
        suited += [Backend.CUDNN] if prefers_cudnn else []
        suited += [Backend.FLASH] if size <= _WIDEST else []
    if _is_decoding(attention, part, q, tile) and max(size, value_size) <= _WIDEST:
        heads = _extent(tile.k, part.k.labels, attention.batch)
        suited.insert(0 if heads < _FEW_HEADS else len(suited), Backend.DECODE)
    suited += [Backend.EFFICIENT] if q.dtype in _HALF | {torch.float32} else []
    return (*suited, Backend.MATH)


def _extent(tensor: Tensor, labels: Labels, some: Labels) -> int:
    """How many elements a tensor has along some labels, leaving out those it lacks."""
    return prod(tensor.shape[labels.index(label)] for label in some if label in labels)


def _is_decoding(attention: Attention, part: KeyPart, q: Tensor, tile: PartTile) -> bool:
    """Whether a few queries see all keys, or the first so many."""
    length = None if part.mask is None or tile.length is None else part.mask.length
    by_length = length is not None and length.labels <= {*attention.batch}
    rows = _extent(q, attention.q.labels, attention.queries)
    return (
        q.dtype in _HALF | {torch.float32}
        and rows <= _FEW_QUERIES
        and not attention.groups
        and part.bias is None
        and (part.mask is None or by_length)
    )


@cache
def _is_fast_with_cudnn(device: torch.device) -> bool:
    """Whether cuDNN is faster than FlashAttention: from Hopper on, as torch assumes."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability(device) >= (9, 0)


def _up_to_diagonal(
    backend: Backend, q: Tensor, k: Tensor, v: Tensor, scale: float, offset: int
) -> Partial:
    """Queries that see keys up to their own index and `offset` more.

    The first rows may see none and the last rows all; between them is a triangle, whose last row
    sees the last of the keys that are left.
    """
    rows, keys = q.shape[2], k.shape[2]
    first = min(max(-offset, 0), rows)
    full = min(max(keys - offset, first), rows)
    pieces: list[Partial] = []
    if first:
        pieces.append(_nothing(q, v, first))
    if full > first:
        seen = slice(None, full + offset)
        pieces.append(_triangle(backend, q[:, :, first:full], k[:, :, seen], v[:, :, seen], scale))
    if rows > full:
        pieces.append(compute(backend, q[:, :, full:], k, v, scale))
    if len(pieces) == 1:
        return pieces[0]
    return torch.cat([out for out, _ in pieces], 2), torch.cat([lse for _, lse in pieces], 2)


def _triangle(backend: Backend, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Partial:
    """Queries of which the last sees all keys, the one before it all but the last, and so on."""
    rows, keys = q.shape[2], k.shape[2]
    if rows == 1:
        return compute(backend, q, k, v, scale)
    if rows == keys or backend in (Backend.FLASH, Backend.CUDNN):
        chosen = backend if rows == keys else Backend.FLASH
        return compute(chosen, q, k, v, scale, causal=True)
    seen = seen_up_to(rows, keys, keys - rows, q.device)
    return compute(backend, q, k, v, scale, seen=seen[None, None])


def _nothing(q: Tensor, v: Tensor, rows: int) -> Partial:
    """The result of rows that see no key."""
    shape = (*q.shape[:2], rows)
    wide = torch.promote_types(q.dtype, torch.float32)
    lse = torch.full(shape, -torch.inf, dtype=wide, device=q.device)
    return q.new_zeros((*shape, v.shape[3])), lse


def _decode(
    attention: Attention, parts: Sequence[KeyPart], q: Tensor, tiles: Sequence[PartTile]
) -> Partial:
    layout = lay_out(attention, parts, q, tiles, True)
    pairs = [*zip(parts, tiles, strict=True)]
    out, lse = decode(
        layout.queries(q),
        [layout.keys(part, tile.k) for part, tile in pairs],
        [layout.values(part, tile.v) for part, tile in pairs],
        [key_counts(layout, part, tile) for part, tile in pairs],
        [part.scale for part in parts],
    )
    return layout.result(out), layout.rows(lse)


def _beside_values(attention: Attention, rows: Tensor) -> Tensor:
    """A tensor of rows with dimensions of size 1 where the result has labels of values."""
    own = row_labels(attention)
    index = [slice(None) if label in own else None for label in attention.output.labels]
    return rows[tuple(index)]


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
) -> Partial:
    """Attention and the log-sum-exp; a causal one lets the last query see all keys.

    With fewer queries than keys only `FLASH` does that. A row without any key is undefined. Where
    `seen` is False a key is hidden. Kernels of torch's add -∞ to its score: NaN and ∞ stay NaN.
    """
    if backend is Backend.MATH:
        seen = seen_up_to(q.shape[2], k.shape[2], 0, q.device) if causal else seen
        return _math(q, k, v, scale, bias, seen)
    bias = added(backend, q, k, bias, seen)
    if backend is Backend.CPU:
        q, k, v = (dense(x) for x in (q, k, v))
        k, v = (x.expand(-1, q.shape[1], -1, -1) for x in (k, v))
        return aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, causal, attn_mask=bias, scale=scale
        )
    heads, rows, size = q.shape[1], q.shape[2], v.shape[3]
    q, k, v = (padded(x) for x in (q, k, v))
    if backend is Backend.FLASH:
        made = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=scale)
    elif backend is Backend.CUDNN:
        made = aten._scaled_dot_product_cudnn_attention(
            q, k, v, None, True, 0.0, causal, False, scale=scale
        )
    else:
        k, v = (x.expand(-1, heads, -1, -1) for x in (k, v))
        made = aten._scaled_dot_product_efficient_attention(
            q, k, v, bias, True, 0.0, causal, scale=scale
        )
    return made[0][..., :size], made[1][..., :rows].reshape(q.shape[:-1])


def added(
    backend: Backend, q: Tensor, k: Tensor, bias: Tensor | None, seen: Tensor | None
) -> Tensor | None:
    """What a kernel adds to scores: a bias, and -∞ where a key is hidden."""
    if seen is not None:
        bias = torch.zeros_like(seen, dtype=q.dtype) if bias is None else bias
        bias = bias.masked_fill(~seen, -torch.inf)
    if bias is None or backend is Backend.CPU:
        return bias
    return padded(bias)[..., : k.shape[2]].expand(*q.shape[:3], -1)


def _math(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None, seen: Tensor | None
) -> Partial:
    wide = torch.promote_types(q.dtype, torch.float32)
    batch, heads, rows, size = q.shape
    shared, keys = k.shape[1:3]
    folded = q.reshape(batch, shared, heads // shared * rows, size).to(wide)
    scores = (folded @ k.to(wide).mT * scale).reshape(batch, heads, rows, keys)
    if bias is not None:
        scores = scores + bias
    if seen is not None:
        scores = scores.masked_fill(~seen, -torch.inf)
    weights = scores.softmax(-1)
    product = weights.reshape(batch, shared, heads // shared * rows, keys) @ v.to(wide)
    return product.reshape(batch, heads, rows, v.shape[3]).to(q.dtype), scores.logsumexp(-1)


def padded(x: Tensor, to: int = 0) -> Tensor:
    """A tensor padded with zeros, which change neither products nor the values before them.

    Its last dimension is a multiple of `ALIGNMENT`, and at least what is asked for.
    """
    missing = max(x.shape[-1], to) + -max(x.shape[-1], to) % ALIGNMENT - x.shape[-1]
    return pad(x, (0, missing)) if missing else dense(x)

"""Tiles of keys and values, and what masks, biases and lengths say about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from eindecomp.errors import InputError
from eindecomp.kernels.torch.attention_backends import seen_up_to
from eindecomp.kernels.torch.attention_layout import condition_labels

if TYPE_CHECKING:
    from torch import Tensor

    from eindecomp.graph.patterns.attention import Attention, KeyPart
    from eindecomp.kernels.torch.attention_layout import Layout


@dataclass(frozen=True, slots=True)
class PartTile:
    """Tiles of the keys and values of a part, with the labels that the part reads them under.

    Masks, biases and lengths have the labels that `condition_labels` names. A causal mask needs no
    tensor; one by length needs `length` alone, which counts from key 0 of the whole part.
    """

    k: Tensor
    v: Tensor
    start: int = 0
    """The index of the first key of the tile."""
    mask: Tensor | None = None
    bias: Tensor | None = None
    length: Tensor | int | None = None


def is_causal(attention: Attention, part: KeyPart) -> bool:
    """Whether a part has a causal mask and nothing else, along the one label of queries."""
    mask = part.mask
    return mask is not None and part.bias is None and attention.queries == (mask.query,)


def causal_offset(attention: Attention, part: KeyPart, tile: PartTile, start: int) -> int | None:
    """How far the first query of a tile sees past the tile's first key, if a mask says no more."""
    if part.mask is None or not is_causal(attention, part):
        return None
    return part.mask.offset + start - tile.start


def may_hide_all(part: KeyPart, tile: PartTile, start: int) -> bool:
    """Whether some query may see no key of a tile, so that it divides 0 by 0."""
    mask = part.mask
    if 0 in tile.k.shape:
        return part.product is not None  # a sum of no quotients is 0
    if part.bias is not None:
        return True
    if mask is None:
        return False
    return not mask.is_causal or mask.offset + start < tile.start


def conditions(
    layout: Layout, part: KeyPart, q: Tensor, tile: PartTile, start: int
) -> tuple[Tensor | None, Tensor | None]:
    """What is added to the scores, and which keys are seen, both [batch, heads, queries, keys]."""
    bias = None
    if part.bias is not None:
        if tile.bias is None:
            raise InputError(f"the scores {part.scores!r} are biased, but no bias is given")
        labels = condition_labels(layout.attention, part, part.bias)
        bias = layout.condition(part, labels, tile.bias).to(q.dtype)
    return bias, _mask(layout, part, q, tile, start)


def seeing_rows(bias: Tensor | None, seen: Tensor | None) -> Tensor | None:
    """Which rows see a key, [batch, heads, queries, 1], where biases or masks may hide all."""
    if bias is not None:
        kept = bias != -torch.inf
        seen = kept if seen is None else kept & seen
    return None if seen is None else seen.any(-1, keepdim=True)


def _mask(layout: Layout, part: KeyPart, q: Tensor, tile: PartTile, start: int) -> Tensor | None:
    mask = part.mask
    if mask is None:
        return None
    keys = layout.sizes[part.key]
    if tile.mask is not None:
        labels = condition_labels(layout.attention, part, mask.value)
        return layout.condition(part, labels, tile.mask)
    if mask.query is not None:
        offset = mask.offset + start - tile.start
        seen = seen_up_to(layout.sizes[mask.query], keys, offset, q.device)
        return layout.condition(part, (mask.query, part.key), seen)
    if mask.length is None or tile.length is None:
        raise InputError(f"the scores {part.scores!r} are masked, but no mask is given")
    index = torch.arange(tile.start, tile.start + keys, device=q.device)
    if isinstance(tile.length, int):
        return (index < tile.length)[None, None, None]
    labels = condition_labels(layout.attention, part, mask.length)
    return index < layout.condition(part, labels, tile.length)


def key_counts(layout: Layout, part: KeyPart, q: Tensor, tile: PartTile) -> Tensor | None:
    """How many keys of a tile count, [batch, heads of keys], where a mask by length says it."""
    if part.mask is None or part.mask.length is None or tile.length is None:
        return None
    length = tile.length
    if isinstance(length, int):
        length = torch.full((), length, dtype=torch.int32, device=q.device)
    labels = condition_labels(layout.attention, part, part.mask.length)
    counts = length - tile.start if tile.start else length
    return layout.lengths(labels, counts.to(torch.int32))

"""Tiles of queries, keys and values as attention kernels take them: [batch, heads, sequence, size].

Dimensions are permuted, split and merged as views wherever strides allow; masks, biases and lengths
say which keys of a tile count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from eindecomp.kernels.torch.tensors import aligned

if TYPE_CHECKING:
    from eindecomp.graph.patterns.attention import Attention, KeyPart
    from eindecomp.graph.patterns.terms import TensorExpr
    from eindecomp.lang.einsum import Labels


@dataclass(frozen=True, slots=True)
class Layout:
    """Which labels make up each of the four dimensions, and the sizes that a tile has of them."""

    attention: Attention
    batch: Labels
    shared: Labels
    """The heads of keys and values."""
    groups: Labels
    """The query heads of each of those."""
    sizes: Mapping[str, int]

    def queries(self, q: Tensor) -> Tensor:
        """The queries as [batch, heads, queries, size]."""
        one = self.attention
        groups = (self.batch, (*self.shared, *self.groups), one.queries, one.inner)
        return arrange(q, one.q.labels, groups, self.sizes)

    def keys(self, part: KeyPart, k: Tensor) -> Tensor:
        """The keys as [batch, heads of keys, keys, size]."""
        groups = (self.batch, self.shared, (part.key,), self.attention.inner)
        return arrange(k, part.k.labels, groups, self.sizes)

    def values(self, part: KeyPart, v: Tensor) -> Tensor:
        """The values as [batch, heads of keys, keys, size of a value]."""
        groups = (self.batch, self.shared, (part.key,), self.attention.values)
        return arrange(v, part.v.labels, groups, self.sizes)

    def condition(self, part: KeyPart, labels: Labels, tensor: Tensor) -> Tensor:
        """A mask or bias as [batch, heads, queries, keys], of size 1 where it does not vary."""
        groups = (self.batch, self.heads, self.attention.queries, (part.key,))
        return arrange(tensor, labels, groups, self.sizes, broadcast=True)

    def lengths(self, labels: Labels, tensor: Tensor) -> Tensor:
        """Numbers of keys as [batch, heads of keys]."""
        return arrange(tensor, labels, (self.batch, self.shared), self.sizes)

    def result(self, out: Tensor) -> Tensor:
        """The tensor [batch, heads, queries, size of a value] with the labels of the result."""
        one = self.attention
        return self.spread(out, (self.heads, one.queries, one.values), one.output.labels)

    def rows(self, lse: Tensor) -> Tensor:
        """The tensor [batch, heads, queries] with the labels of the result but those of values."""
        return self.spread(lse, (self.heads, self.attention.queries), row_labels(self.attention))

    @property
    def heads(self) -> Labels:
        """The heads of queries."""
        return (*self.shared, *self.groups)

    def spread(self, tensor: Tensor, groups: Sequence[Labels], wanted: Labels) -> Tensor:
        """The tensor [batch, *groups] with some labels, summed over all others."""
        order = [label for group in (self.batch, *groups) for label in group]
        # Splitting dimensions is a view whatever their strides are.
        whole = tensor.reshape([self.sizes[label] for label in order])
        repeated = [place for place, label in enumerate(order) if label not in wanted]
        left = [label for label in order if label in wanted]
        whole = whole.sum(repeated) if repeated else whole
        return whole.permute([left.index(label) for label in wanted])


def lay_out(
    attention: Attention,
    parts: Sequence[KeyPart],
    q: Tensor,
    tiles: Sequence[PartTile],
    groups_heads: bool,
) -> Layout:
    """The layout of tiles for a kernel that shares heads of keys among query heads, or does not.

    For one that does not, every head of keys is a batch of its own, and is all of its query heads
    at once, with stride 0.
    """
    reads = [(attention.q.labels, q)]
    for part, tile in zip(parts, tiles, strict=True):
        reads += [(part.k.labels, tile.k), (part.v.labels, tile.v)]
    sizes = {
        label: size
        for labels, tensor in reads
        for label, size in zip(labels, tensor.shape, strict=True)
    }
    if attention.groups and not groups_heads:
        return Layout(attention, attention.batch, (), attention.groups, sizes)
    return Layout(attention, attention.batch[:-1], attention.batch[-1:], attention.groups, sizes)


def row_labels(attention: Attention) -> Labels:
    """The labels of the softmax rows, in the order of the result."""
    return tuple(x for x in attention.output.labels if x not in attention.values)


def condition_labels(attention: Attention, part: KeyPart, value: TensorExpr) -> Labels:
    """The labels of the tensor that a mask, a bias or a length is given as, in order."""
    return tuple(x for x in (*row_labels(attention), part.key) if x in value.labels)


def arrange(
    tensor: Tensor,
    labels: Labels,
    groups: Sequence[Labels],
    sizes: Mapping[str, int],
    *,
    broadcast: bool = False,
) -> Tensor:
    """One dimension for each group of labels; labels that it does not have are repeated.

    With `broadcast`, a group of which it has no label is a dimension of size 1.
    """
    order = tuple(label for group in groups for label in group)
    spread: list[int] = []
    shape: list[int] = []
    for group in groups:
        is_there = not broadcast or not {*group}.isdisjoint(labels)
        own = [sizes[label] if is_there else 1 for label in group]
        spread += own
        shape.append(prod(own))
    return aligned(tensor, labels, order).expand(spread).reshape(shape)


@dataclass(frozen=True, slots=True)
class PartTile:
    """Tiles of the keys and values of a part, with the labels that the part reads them under.

    Masks, biases and lengths have the labels that `condition_labels` names. A causal mask needs no
    tensor; one by length needs `length` alone.
    """

    k: Tensor
    v: Tensor
    mask: Tensor | None = None
    bias: Tensor | None = None
    length: Tensor | None = None


def is_causal(attention: Attention, part: KeyPart) -> bool:
    """Whether a part has a causal mask and nothing else, along the one label of queries."""
    mask = part.mask
    return mask is not None and part.bias is None and attention.queries == (mask.query,)


def may_hide_all(part: KeyPart, tile: PartTile, start: int) -> bool:
    """Whether some query may see no key of a tile, so that it divides 0 by 0."""
    mask = part.mask
    if 0 in tile.k.shape:
        return not part.divided_early  # a sum of no quotients is 0
    if part.bias is not None:
        return True
    if mask is None:
        return False
    return not mask.is_causal or mask.offset + start < 0


def conditions(
    layout: Layout, part: KeyPart, tile: PartTile, start: int
) -> tuple[Tensor | None, Tensor | None]:
    """What is added to the scores, and which keys are seen, both [batch, heads, queries, keys]."""

    def laid_out(value: TensorExpr, given: Tensor) -> Tensor:
        return layout.condition(part, condition_labels(layout.attention, part, value), given)

    mask, keys, device = part.mask, layout.sizes[part.key], tile.k.device
    bias = seen = None
    if part.bias is not None and tile.bias is not None:
        bias = laid_out(part.bias, tile.bias).to(tile.k.dtype)
    if mask is not None and tile.mask is not None:
        seen = laid_out(mask.value, tile.mask)
    elif mask is not None and mask.query is not None:
        seen = seen_up_to(layout.sizes[mask.query], keys, mask.offset + start, device)
        seen = layout.condition(part, (mask.query, part.key), seen)
    elif mask is not None and mask.length is not None and tile.length is not None:
        seen = torch.arange(keys, device=device) < laid_out(mask.length, tile.length)
    return bias, seen


def seeing_rows(bias: Tensor | None, seen: Tensor | None) -> Tensor | None:
    """Which rows see a key, [batch, heads, queries, 1], where biases or masks may hide all."""
    if bias is not None:
        kept = bias != -torch.inf
        seen = kept if seen is None else kept & seen
    return None if seen is None else seen.any(-1, keepdim=True)


def seen_up_to(queries: int, keys: int, offset: int, device: torch.device) -> Tensor:
    """Where key index <= query index + offset."""
    rows = torch.arange(queries, device=device).unsqueeze(1) + offset
    return torch.arange(keys, device=device) <= rows


def key_counts(layout: Layout, part: KeyPart, tile: PartTile) -> Tensor | None:
    """How many keys of a tile count, [batch, heads of keys], where a mask by length says it."""
    if part.mask is None or part.mask.length is None or tile.length is None:
        return None
    labels = condition_labels(layout.attention, part, part.mask.length)
    return layout.lengths(labels, tile.length.to(torch.int32))

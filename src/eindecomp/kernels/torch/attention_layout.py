"""Queries, keys and values as attention kernels take them: [batch, heads, sequence, size].

Dimensions are permuted, split and merged as views wherever strides allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from eindecomp.graph.patterns.attention import Attention, KeyPart, Value
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
        heads = (*self.shared, *self.groups)
        groups = (self.batch, heads, self.attention.queries, (part.key,))
        return arrange(tensor, labels, groups, self.sizes, broadcast=True)

    def lengths(self, labels: Labels, tensor: Tensor) -> Tensor:
        """Numbers of keys as [batch, heads of keys]."""
        return arrange(tensor, labels, (self.batch, self.shared), self.sizes)

    def result(self, out: Tensor) -> Tensor:
        """What is [batch, heads, queries, size of a value], with the labels of the result."""
        one = self.attention
        return self._spread(out, (*row_labels(one), *one.values), one.output.labels)

    def rows(self, lse: Tensor) -> Tensor:
        """What is [batch, heads, queries], with the labels of the result but those of values."""
        rows = row_labels(self.attention)
        return self._spread(lse, rows, rows)

    def _spread(self, tensor: Tensor, labels: Labels, wanted: Labels) -> Tensor:
        one = self.attention
        rows = (*self.batch, *self.shared, *self.groups, *one.queries)
        order = (*rows, *(label for label in one.values if label in labels))
        # Splitting dimensions is a view whatever their strides are.
        whole = tensor.reshape([self.sizes[label] for label in order])
        return whole.permute([order.index(label) for label in wanted])


def lay_out(attention: Attention, sizes: Mapping[str, int], groups_heads: bool) -> Layout:
    """Say which labels go where, for a kernel that can share heads of keys among query heads.

    For one that cannot, every head of keys is a batch of its own, and lies in all of its query
    heads at once, with stride 0.
    """
    if attention.groups and not groups_heads:
        return Layout(attention, attention.batch, (), attention.groups, sizes)
    return Layout(attention, attention.batch[:-1], attention.batch[-1:], attention.groups, sizes)


def row_labels(attention: Attention) -> Labels:
    """The labels of one softmax each, in the order that the result has them in."""
    return tuple(x for x in attention.output.labels if x not in attention.values)


def condition_labels(attention: Attention, part: KeyPart, value: Value) -> Labels:
    """The labels of the tensor that a mask, a bias or a length is given as, in order."""
    return tuple(x for x in (*row_labels(attention), part.key) if x in value.labels)


def tile_sizes(reads: Sequence[tuple[Labels, Tensor]]) -> dict[str, int]:
    """The sizes of the labels of tiles."""
    return {
        label: size
        for labels, tensor in reads
        for label, size in zip(labels, tensor.shape, strict=True)
    }


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
    order = [label for group in groups for label in group]
    tensor = tensor.permute([labels.index(label) for label in order if label in labels])
    for k, label in enumerate(order):
        if label not in labels:
            tensor = tensor.unsqueeze(k)
    spread: list[int] = []
    shape: list[int] = []
    for group in groups:
        is_there = not broadcast or not {*group}.isdisjoint(labels)
        own = [sizes[label] if is_there else 1 for label in group]
        spread += own
        size = 1
        for one in own:
            size *= one
        shape.append(size)
    return tensor.expand(spread).reshape(shape)

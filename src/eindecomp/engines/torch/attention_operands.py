"""What attention reads on tiles: blocks of queries, keys and values, and of what masks them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from eindecomp.graph.patterns.attention import MaskKind, find_attention
from eindecomp.kernels.torch.attention import PartTile
from eindecomp.kernels.torch.attention_layout import condition_labels
from eindecomp.kernels.torch.functions import torch_functions
from eindecomp.kernels.torch.views import aligned
from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.scalar_types import with_casts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from torch import Tensor

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.patterns.attention import Attention, KeyPart, Read, Value
    from eindecomp.layout.boxes import Box, Range
    from eindecomp.tra.tiles.ops import Block

    Tensors = Mapping[Read, Tensor]


@dataclass(frozen=True, eq=False)
class AttentionOperands:
    """Where the operands of some parts of an attention lie."""

    graph: Graph
    attention: Attention
    parts: tuple[KeyPart, ...]
    blocks: Mapping[Read, Block]
    starts: Mapping[str, int]
    """The first index along each label of the result and of the keys."""
    lengths: frozenset[str]
    """The labels of keys whose mask is told by a length that can be read here."""

    def tiles(self, tensors: Tensors, scalars: Sequence[Tensor]) -> list[PartTile]:
        """Tiles of the keys and values of each part, from the tensors of all blocks."""
        return [self._tile(part, tensors, scalars) for part in self.parts]

    @property
    def start(self) -> int:
        """The index of the first query, where a mask depends on it."""
        masks = [part.mask for part in self.parts if part.mask is not None]
        return next((self.starts[mask.query] for mask in masks if mask.query is not None), 0)

    @property
    def key(self) -> Hashable:
        """All that the result depends on but the tensors; names of vertices do not matter."""
        one = self.attention
        reads = tuple((each.labels, self.graph[each.name].dtype) for each in self.blocks)
        roles = one.batch, one.groups, one.queries, one.inner, one.values
        parts = tuple(self._part_key(part) for part in self.parts)
        return reads, roles, one.output.labels, one.dtype, self.start, parts

    def _part_key(self, part: KeyPart) -> Hashable:
        order = {read: k for k, read in enumerate(self.blocks)}

        def unnamed(value: Value | None) -> Hashable:
            return value and (value.expr, tuple((order.get(r), r.labels) for r in value.reads))

        mask = part.mask
        by_length = part.key in self.lengths
        told = mask and (mask.kind, mask.query, mask.offset, by_length, unnamed(mask.length))
        hidden = mask and unnamed(mask.value)
        by_index = mask is not None and (mask.kind is MaskKind.CAUSAL or by_length)
        start = self.starts[part.key] if by_index else 0
        own = part.key, order[part.k], order[part.v], part.scale, part.product is None
        return own, start, told, hidden, unnamed(part.bias)

    def _tile(self, part: KeyPart, tensors: Tensors, scalars: Sequence[Tensor]) -> PartTile:
        mask, bias, length = part.mask, None, None
        hidden = None
        if part.bias is not None:
            bias = self._value(part.bias, part, tensors, scalars)
        if mask is not None and mask.length is not None and part.key in self.lengths:
            length = self._value(mask.length, part, tensors, scalars)
        elif mask is not None and mask.kind is not MaskKind.CAUSAL:
            hidden = self._value(mask.value, part, tensors, scalars)
        start = self.starts[part.key]
        return PartTile(tensors[part.k], tensors[part.v], start, hidden, bias, length)

    def _value(
        self, value: Value, part: KeyPart, tensors: Tensors, scalars: Sequence[Tensor]
    ) -> Tensor:
        """A mask, bias or length, in the labels in which it is wanted."""
        labels = condition_labels(self.attention, part, value)
        types = [self.graph[each.name].dtype for each in value.reads]
        expr, _ = with_casts(value.expr, types, self.graph.scalars)
        names = list(self.graph.scalars)
        device = tensors[self.attention.q].device
        function = compile_scalar(expr, len(value.reads), torch_functions(device), names)
        operands = [aligned(tensors[each], each.labels, labels) for each in value.reads]
        # One that reads nothing is a number.
        return torch.as_tensor(function(*operands, *scalars), device=device)


def operands_of(
    graph: Graph,
    one: Attention,
    parts: tuple[KeyPart, ...],
    ranges: Mapping[str, Range],
    find: Callable[[str, Box], Block | None],
) -> AttentionOperands | None:
    """All that some parts read for a range of each label; None if `find` does not find it.

    That is asked for boxes of vertices.
    """
    blocks: dict[Read, Block] = {}

    def has(reads: Iterable[Read]) -> bool:
        """Whether all that is read is there; what is there is noted."""
        for read in reads:
            block = find(read.name, tuple(ranges[label] for label in read.labels))
            if block is None:
                return False
            blocks[read] = block
        return True

    lengths = frozenset(
        part.key
        for part in parts
        if part.mask is not None and part.mask.length is not None and has(part.mask.length.reads)
    )
    if not has([one.q, *(read for part in parts for read in _reads(part, lengths))]):
        return None
    starts = {label: low for label, (low, _) in ranges.items()}
    return AttentionOperands(graph, one, parts, blocks, starts, lengths)


def _reads(part: KeyPart, lengths: Collection[str]) -> list[Read]:
    """All tensors that a part reads but the lengths that take the place of masks."""
    values = [part.bias]
    if part.mask is not None and part.mask.kind is not MaskKind.CAUSAL and part.key not in lengths:
        values.append(part.mask.value)
    return [
        part.k,
        part.v,
        *(read for value in values if value is not None for read in value.reads),
    ]


_KNOWN: dict[int, tuple[Graph, tuple[Attention, ...]]] = {}


def attention_of(graph: Graph) -> tuple[Attention, ...]:
    """The attention of a graph, which is looked for once."""
    known = _KNOWN.get(id(graph))
    if known is None or known[0] is not graph:
        _KNOWN.clear()
        known = _KNOWN[id(graph)] = graph, find_attention(graph)
    return known[1]

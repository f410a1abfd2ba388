"""Attention inside a region: one call in the place of all the vertices that make it up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.graph.patterns.attention import MaskKind, find_attention
from eindecomp.kernels.torch.attention import PartTile, attend
from eindecomp.kernels.torch.attention_layout import condition_labels
from eindecomp.kernels.torch.functions import torch_functions
from eindecomp.kernels.torch.views import aligned
from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.scalar_types import with_casts
from eindecomp.tra.boxes import Box, inside
from eindecomp.tra.tiles.ops import Block, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from torch import Tensor

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.patterns.attention import Attention, KeyPart, Read, Value
    from eindecomp.tra.tiles.ops import TileProgram
    from eindecomp.tra.tiles.regions import Region

    Reader = Callable[[Block], Tensor]


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """Attention on tiles: where its operands lie, and the vertices that it takes the place of."""

    graph: Graph
    attention: Attention
    blocks: Mapping[Read, Block]
    starts: Mapping[str, int]
    """The first index along each label of the result and of the keys."""
    into: int
    skips: tuple[int, ...]
    """The tiles that need not be made."""
    lengths: frozenset[str]
    """The labels of keys whose mask is told by a length that can be read here."""

    def __call__(self, read: Reader, scalars: Sequence[Tensor]) -> Tensor:
        """The result, from the blocks that `read` finds."""
        one = self.attention
        q = read(self.blocks[one.q])
        tiles = [self._part(part, read, scalars) for part in one.parts]
        masks = [part.mask for part in one.parts if part.mask is not None]
        start = next((self.starts[mask.query] for mask in masks if mask.query is not None), 0)
        return attend(one, q, tiles, start=start)

    def _part(self, part: KeyPart, read: Reader, scalars: Sequence[Tensor]) -> PartTile:
        mask, bias, length = part.mask, None, None
        hidden = None
        if part.bias is not None:
            bias = self._value(part.bias, part, read, scalars)
        if mask is not None and mask.length is not None and part.key in self.lengths:
            length = self._value(mask.length, part, read, scalars)
        elif mask is not None and mask.kind is not MaskKind.CAUSAL:
            hidden = self._value(mask.value, part, read, scalars)
        k, v = read(self.blocks[part.k]), read(self.blocks[part.v])
        return PartTile(k, v, self.starts[part.key], hidden, bias, length)

    def _value(
        self, value: Value, part: KeyPart, read: Reader, scalars: Sequence[Tensor]
    ) -> Tensor:
        """A mask, bias or length, in the labels in which it is wanted."""
        labels = condition_labels(self.attention, part, value)
        types = [self.graph[each.name].dtype for each in value.reads]
        expr, _ = with_casts(value.expr, types, self.graph.scalars)
        names = list(self.graph.scalars)
        tensors = [read(self.blocks[each]) for each in value.reads]
        device = (*tensors, *scalars)[0].device
        function = compile_scalar(expr, len(tensors), torch_functions(device), names)
        operands = [
            aligned(x, each.labels, labels) for x, each in zip(tensors, value.reads, strict=True)
        ]
        return function(*operands, *scalars)


def attention_calls(tiled: TileProgram, region: Region) -> tuple[AttentionCall, ...]:
    """The attention that a region computes as a whole."""
    found = (_call(tiled, region, one) for one in _attention(tiled))
    return tuple(call for call in found if call is not None)


_KNOWN: dict[int, tuple[Graph, tuple[Attention, ...]]] = {}


def _attention(tiled: TileProgram) -> tuple[Attention, ...]:
    graph = tiled.program.graph
    known = _KNOWN.get(id(graph))
    if known is None or known[0] is not graph:
        _KNOWN.clear()
        known = _KNOWN[id(graph)] = graph, find_attention(graph)
    return known[1]


def _call(tiled: TileProgram, region: Region, one: Attention) -> AttentionCall | None:
    inner = {*one.replaces}
    ops = [op for op in region.ops if tiled.tiles[op.into].tensor in inner]
    if len(ops) != len(inner) or any(op.kind is not Kind.WHOLE for op in ops):
        return None
    [into] = [op.into for op in ops if tiled.tiles[op.into].tensor == one.result]
    skips = tuple(op.into for op in ops if op.into != into)
    if {*skips} & {*region.writes}:
        return None
    ranges = {label: (0, size) for label, size in one.sizes.items()}
    ranges |= dict(zip(one.output.labels, tiled.tiles[into].box, strict=True))
    blocks: dict[Read, Block] = {}

    def has(reads: Iterable[Read]) -> bool:
        """Whether the region has all that is read; what it has is noted."""
        for read in reads:
            box = tuple(ranges[label] for label in read.labels)
            block = _block(tiled, region, read.name, box)
            if block is None:
                return False
            blocks[read] = block
        return True

    lengths = frozenset(
        part.key
        for part in one.parts
        if part.mask is not None and part.mask.length is not None and has(part.mask.length.reads)
    )
    if not has([one.q, *(read for part in one.parts for read in _reads(part, lengths))]):
        return None
    starts = {label: low for label, (low, _) in ranges.items()}
    return AttentionCall(tiled.program.graph, one, blocks, starts, into, skips, lengths)


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


def _block(tiled: TileProgram, region: Region, tensor: str, box: Box) -> Block | None:
    """A block of a tensor that some operation of the region reads or makes."""
    read = [b for op in region.ops for b in op.reads if b is not None]
    made = [Block(op.into, tiled.tiles[op.into].box) for op in region.ops]
    for block in (*read, *made):
        tile = tiled.tiles[block.tile]
        if tile.tensor == tensor and len(tile.types) == 1 and inside(box, block.box):
            return Block(block.tile, box)
    return None

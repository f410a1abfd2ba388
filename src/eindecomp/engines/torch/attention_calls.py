"""Attention on tiles: one call in the place of all the vertices that make it up.

Where a device has all keys, it computes its result by one kernel, and scores and weights are made
by nobody. Where a plan cuts the keys over devices, the vertices are computed one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from eindecomp.graph.graph import Graph
from eindecomp.graph.patterns.attention import Attention, KeyPart, find_attention
from eindecomp.graph.patterns.terms import TensorExpr, TensorRead
from eindecomp.kernels.torch.attention import attend
from eindecomp.kernels.torch.attention_layout import PartTile, condition_labels
from eindecomp.kernels.torch.functions import torch_functions
from eindecomp.kernels.torch.tensors import aligned
from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.scalar_types import with_casts
from eindecomp.layout.boxes import Range
from eindecomp.tra.tiles.ops import Block, OpKind, TileCall, TileOp, TileProgram

Tensor = torch.Tensor
Ranges = dict[str, Range]


def attend_by_calls(tiled: TileProgram) -> TileProgram:
    """A program in which each device that has all keys of an attention attends by one call."""
    maker = {op.into: op for op in tiled.ops}
    calls: dict[int, TileOp] = {}
    instead: dict[int, int] = {}
    for one in find_attention(tiled.program.graph):
        for op in tiled.ops:
            if tiled.tiles[op.into].tensor != one.result:
                continue
            blocks = _seen(tiled, maker, op, one)
            inner = {b.tile for b in blocks if tiled.tiles[b.tile].tensor in one.replaces}
            kinds = {maker[tile].kind for tile in (op.into, *inner)}
            read_by = {reader for tile in inner for reader in tiled.readers[tile]}
            alone = len(inner) + 1 == len(one.replaces) and read_by - inner == {op.into}
            if not alone or kinds != {OpKind.WHOLE}:
                continue  # some of it is made elsewhere, or for others too
            operands = _operands(tiled, one, op, blocks)
            if operands is not None:
                call = TileCall(operands.key, (op.into,), operands.attend, len(one.replaces))
                reads = tuple(operands.blocks.values())
                calls[op.into] = replace(op, kind=OpKind.CALL, reads=reads, call=call)
                instead |= dict.fromkeys(inner, op.into)
    return _replaced(tiled, [calls.get(op.into, op) for op in tiled.ops], instead)


def _seen(
    tiled: TileProgram, maker: Mapping[int, TileOp], op: TileOp, one: Attention
) -> list[Block]:
    """The blocks that an operation reads, and that what it reads is made of, in its memory.

    They are followed through inner vertices of an attention, and through masks.
    """
    seen: dict[Block, None] = {}
    ahead = [op]
    while ahead:
        for block in ahead.pop().reads:
            if block is None or block in seen:
                continue
            seen[block] = None
            tile = tiled.tiles[block.tile]
            if tile.tensor in one.replaces or tile.types[0].kind in "biu":
                ahead.append(maker[block.tile])
    memory = tiled.tiles[op.into].memory
    return [block for block in seen if tiled.tiles[block.tile].memory == memory]


def _find(
    tiled: TileProgram, seen: Sequence[Block], read: TensorRead, ranges: Ranges
) -> Block | None:
    """What is read for a range of each label, among blocks; an empty one lies within one, too."""
    box = tuple(ranges[label] for label in read.labels)
    for block in seen:
        sides = zip(box, block.box, strict=False)
        if tiled.tiles[block.tile].tensor == read.name and all(
            a >= c and b <= d for (a, b), (c, d) in sides
        ):
            return Block(block.tile, box)
    return None


def _operands(
    tiled: TileProgram, one: Attention, op: TileOp, seen: Sequence[Block]
) -> _Operands | None:
    """All that an attention reads for a tile of its result; None if a block was not seen."""
    ranges = {label: (0, size) for label, size in one.sizes.items()}
    ranges |= dict(zip(one.output.labels, tiled.tiles[op.into].box, strict=True))
    blocks: dict[TensorRead, Block] = {}

    def has(reads: Iterable[TensorRead]) -> bool:
        """Whether all that is read is there; what is there is noted."""
        for read in reads:
            block = _find(tiled, seen, read, ranges)
            if block is None:
                return False
            blocks[read] = block
        return True

    masks = {part.key: part.mask for part in one.parts if part.mask is not None}
    lengths = frozenset(
        key for key, mask in masks.items() if mask.length is not None and has(mask.length.reads)
    )
    values = [part.bias for part in one.parts]
    values += [m.value for key, m in masks.items() if not m.is_causal and key not in lengths]
    own = [one.q, *(read for part in one.parts for read in (part.k, part.v))]
    if not has([*own, *(read for value in values if value is not None for read in value.reads)]):
        return None
    causal = (mask.query for mask in masks.values() if mask.query is not None)
    start = next((ranges[query][0] for query in causal), 0)
    return _Operands(tiled.program.graph, one, blocks, start, lengths)


@dataclass(frozen=True, eq=False)
class _Operands:
    """Where the operands of an attention lie, and what is computed from them."""

    graph: Graph
    attention: Attention
    blocks: Mapping[TensorRead, Block]
    start: int
    """The index of the first query, where a mask depends on it."""
    lengths: frozenset[str]
    """The labels of keys whose mask is told by a length that can be read here."""

    def attend(self, given: Sequence[Tensor], scalars: Sequence[Tensor]) -> list[Tensor]:
        """The result, from the blocks of the operands in their order."""
        one, tensors = self.attention, dict(zip(self.blocks, given, strict=True))
        tiles = [self._tile(part, tensors, scalars) for part in one.parts]
        return [attend(one, tensors[one.q], tiles, start=self.start)]

    @property
    def key(self) -> Hashable:
        """All that the result depends on but the tensors; names of vertices do not matter."""
        one = self.attention
        reads = tuple((each.labels, self.graph[each.name].dtype) for each in self.blocks)
        roles = one.batch, one.groups, one.queries, one.inner, one.values
        parts = tuple(self._part_key(part) for part in one.parts)
        return reads, roles, one.output.labels, one.dtype, self.start, parts

    def _part_key(self, part: KeyPart) -> Hashable:
        order = {read: k for k, read in enumerate(self.blocks)}

        def unnamed(value: TensorExpr | None) -> Hashable:
            return value and (value.expr, tuple((order.get(r), r.labels) for r in value.reads))

        mask, by_length = part.mask, part.key in self.lengths
        told = mask and (mask.query, mask.offset, unnamed(mask.length), unnamed(mask.value))
        own = part.key, order[part.k], order[part.v], part.scale, part.divided_early
        return own, by_length, told, unnamed(part.bias)

    def _tile(
        self, part: KeyPart, tensors: Mapping[TensorRead, Tensor], scalars: Sequence[Tensor]
    ) -> PartTile:
        """The keys and values of a part, and what hides or favours some of them."""

        def computed(value: TensorExpr | None) -> Tensor | None:
            return None if value is None else self._value(value, part, tensors, scalars)

        mask, by_length = part.mask, part.key in self.lengths
        hides = mask is not None and not mask.is_causal and not by_length
        return PartTile(
            tensors[part.k],
            tensors[part.v],
            computed(mask.value) if mask is not None and hides else None,
            computed(part.bias),
            computed(mask.length) if mask is not None and by_length else None,
        )

    def _value(
        self,
        value: TensorExpr,
        part: KeyPart,
        tensors: Mapping[TensorRead, Tensor],
        scalars: Sequence[Tensor],
    ) -> Tensor:
        """A mask, bias or length, in the labels in which it is wanted."""
        labels = condition_labels(self.attention, part, value)
        types = [self.graph[each.name].dtype for each in value.reads]
        expr, _ = with_casts(value.expr, types, self.graph.scalars)
        device = tensors[self.attention.q].device
        functions, names = torch_functions(device), list(self.graph.scalars)
        function = compile_scalar(expr, len(value.reads), functions, names)
        operands = [aligned(tensors[each], each.labels, labels) for each in value.reads]
        # One that reads nothing is a number.
        return torch.as_tensor(function(*operands, *scalars), device=device)


def _replaced(tiled: TileProgram, ops: Sequence[TileOp], instead: Mapping[int, int]) -> TileProgram:
    """A program of other operations, without those that nobody reads now.

    What devices compute is told of the tiles that were made `instead`.
    """
    before = {tile for op in tiled.ops for tile in op.sources}
    read = {*tiled.kept}
    left: list[TileOp] = []
    for op in reversed(ops):
        if op.kind is OpKind.LOAD or op.into in read or op.into not in before:
            left.append(op)
            read.update(op.sources)
    there = {op.into for op in left}
    shares = tuple(
        share
        if share.tile is None or share.tile in there
        else replace(share, tile=instead.get(share.tile, share.tile))
        for share in tiled.shares
    )
    return replace(tiled, ops=tuple(left[::-1]), shares=shares)

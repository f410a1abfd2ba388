"""Attention inside a region: one call in the place of all the vertices that make it up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.engines.torch.attention_operands import attention_of, operands_of
from eindecomp.kernels.torch.attention import attend
from eindecomp.layout.boxes import Box, inside
from eindecomp.tra.tiles.ops import Block, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from eindecomp.engines.torch.attention_operands import AttentionOperands
    from eindecomp.graph.patterns.attention import Attention
    from eindecomp.tra.tiles.ops import TileProgram
    from eindecomp.tra.tiles.regions import Region


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """Attention on tiles: its operands, and the vertices that it takes the place of."""

    operands: AttentionOperands
    into: int
    skips: tuple[int, ...]
    """The tiles that need not be made."""

    def __call__(self, read: Callable[[Block], Tensor], scalars: Sequence[Tensor]) -> Tensor:
        """The result, from the blocks that `read` finds."""
        own = self.operands
        tensors = {each: read(block) for each, block in own.blocks.items()}
        one, tiles = own.attention, own.tiles(tensors, scalars)
        return attend(one, tensors[one.q], tiles, start=own.start)


def unmade_tiles(tiled: TileProgram) -> frozenset[int]:
    """The tiles that are not made where attention is computed as a whole in one region."""
    found = attention_of(tiled.program.graph)
    names = {name for one in found for name in one.replaces if name != one.result}
    whole = (op.into for op in tiled.ops if op.kind is Kind.WHOLE)
    return frozenset(tile for tile in whole if tiled.tiles[tile].tensor in names)


def attention_calls(tiled: TileProgram, region: Region) -> tuple[AttentionCall, ...]:
    """The attention that a region computes as a whole."""
    found = (_call(tiled, region, one) for one in attention_of(tiled.program.graph))
    return tuple(call for call in found if call is not None)


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
    operands = operands_of(
        tiled.program.graph,
        one,
        one.parts,
        ranges,
        lambda name, box: _block(tiled, region, name, box),
    )
    return None if operands is None else AttentionCall(operands, into, skips)


def _block(tiled: TileProgram, region: Region, tensor: str, box: Box) -> Block | None:
    """A block of a tensor that some operation of the region reads or makes."""
    read = [b for op in region.ops for b in op.reads if b is not None]
    made = [Block(op.into, tiled.tiles[op.into].box) for op in region.ops]
    for block in (*read, *made):
        tile = tiled.tiles[block.tile]
        if tile.tensor == tensor and len(tile.types) == 1 and inside(box, block.box):
            return Block(block.tile, box)
    return None

"""What the tiles of a program take of a memory, and which of them may share it with inputs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import Arg
from eindecomp.tra.program.memory import Peak
from eindecomp.tra.tiles.ops import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from eindecomp.tra.tiles.ops import TileOp, TileProgram
    from eindecomp.tra.tiles.regions import Region


def most_held(
    tiled: TileProgram, regions: Sequence[Region], uncounted: Collection[int] = ()
) -> Peak:
    """The most bytes of tiles that are in one memory at once, if regions run one after another.

    While a region runs, so are all tiles that it makes, but for those that are not counted.
    """
    sizes = [0 if k in uncounted else tile.nbytes for k, tile in enumerate(tiled.tiles)]
    held: dict[int, int] = defaultdict(int)
    for op in tiled.ops:
        if op.kind is Kind.LOAD:
            held[tiled.tiles[op.into].memory] += sizes[op.into]
    last = {tile: region.number for region in regions for tile in region.reads}
    most = Peak(max(held.values(), default=0), "")
    for region in regions:
        made = held[region.memory] + sum(sizes[op.into] for op in region.ops)
        if made > most.bytes:
            largest = max((op.into for op in region.ops), key=sizes.__getitem__)
            most = Peak(made, tiled.tiles[largest].tensor)
        held[region.memory] += sum(sizes[tile] for tile in region.writes)
        for tile in region.reads:
            if last[tile] == region.number and tile not in tiled.kept:
                held[tiled.tiles[tile].memory] -= sizes[tile]
    return most


def surely_made(tiled: TileProgram, regions: Sequence[Region], fused: bool) -> set[int]:
    """The tiles that take memory of their own: no views, and nothing that is only filled.

    If regions are `fused`, it is not known which others than those that they write do.
    """
    ops = {op.into: op for region in regions for op in region.ops}
    if fused:
        written = {tile for region in regions for tile in region.writes}
        ops = {tile: op for tile, op in ops.items() if tile in written}
    return {t for t, op in ops.items() if op.kind is not Kind.FILL and not _is_turned(tiled, op)}


def _is_turned(tiled: TileProgram, op: TileOp) -> bool:
    """Whether an operation may only look at its operand in another way."""
    vertex = tiled.program.graph[tiled.tiles[op.into].tensor].op
    plain = not isinstance(vertex, EinSum) or isinstance(vertex.join, Arg)
    return plain and _may_be_view(tiled, op)


def possible_views(tiled: TileProgram) -> dict[int, int]:
    """By the tile of an output, the tile of an input of which it may be a view."""
    source: dict[int, int] = {}
    for op in tiled.ops:
        if op.kind is Kind.LOAD:
            source[op.into] = op.into
        elif _may_be_view(tiled, op) and op.sources[0] in source:
            source[op.into] = source[op.sources[0]]
    return {tile: source[tile] for tile in sorted(tiled.kept) if tile in source}


def _may_be_view(tiled: TileProgram, op: TileOp) -> bool:
    """Whether a kernel may give its only operand back, as it is or turned."""
    if op.kind is not Kind.WHOLE or len(op.sources) != 1:
        return False
    vertex = tiled.program.graph[tiled.tiles[op.into].tensor].op
    return not (isinstance(vertex, EinSum) and vertex.aggregated)

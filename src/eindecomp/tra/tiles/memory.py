"""What the tiles of a program take of a memory, and which of them may share it with inputs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from eindecomp.lang.einsum import EinSum
from eindecomp.tra.tiles.ops import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.tra.tiles.ops import TileOp, TileProgram
    from eindecomp.tra.tiles.regions import Region


def most_held(tiled: TileProgram, regions: Sequence[Region]) -> int:
    """The most bytes of tiles that are in one memory at once, if regions run one after another.

    While a region runs, so are all tiles that it makes.
    """
    sizes = [tile.nbytes for tile in tiled.tiles]
    held: dict[int, int] = defaultdict(int)
    for op in tiled.ops:
        if op.kind is Kind.LOAD:
            held[tiled.tiles[op.into].memory] += sizes[op.into]
    last = {tile: region.number for region in regions for tile in region.reads}
    most = max(held.values(), default=0)
    for region in regions:
        made = held[region.memory] + sum(sizes[op.into] for op in region.ops)
        most = max(most, made)
        held[region.memory] += sum(sizes[tile] for tile in region.writes)
        for tile in region.reads:
            if last[tile] == region.number and tile not in tiled.kept:
                held[tiled.tiles[tile].memory] -= sizes[tile]
    return most


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

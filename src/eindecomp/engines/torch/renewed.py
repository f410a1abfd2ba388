"""Which tiles of inputs a run renews: those that the next run is given as it has made them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.tra.tiles.ops import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.engines.torch.windows import Windows
    from eindecomp.tra.tiles.ops import TileProgram


def renewed_tiles(
    tiled: TileProgram, tie: Mapping[str, str], windows: Windows | None = None
) -> dict[str, dict[int, int]]:
    """By tied input which of its tiles becomes which of its result's.

    Only where all are cut alike, and each is alone in its window if they lie in windows.
    """
    loads: dict[str, list[int]] = {}
    for op in tiled.ops:
        if op.kind is Kind.LOAD:
            loads.setdefault(tiled.tiles[op.into].tensor, []).append(op.into)
    found: dict[str, dict[int, int]] = {}
    taken: set[int] = set()
    for old, new in tie.items():
        made = _made(tiled, new)
        pairs = {tile: made.get(tiled.tiles[tile].box) for tile in loads.get(old, ())}
        fitting = {
            tile: other
            for tile, other in pairs.items()
            if other is not None and other not in taken
            if _fit(tiled, windows, tile, other)
        }
        if fitting == pairs:
            found[old] = fitting
            taken.update(fitting.values())
    return found


def _made(tiled: TileProgram, name: str) -> dict[object, int]:
    """The tiles of a result by their boxes; nothing of a tile that is only in part the result's."""
    blocks = tiled.outputs.get(name, ())
    return {block.box: block.tile for block in blocks if block.box == tiled.tiles[block.tile].box}


def _fit(tiled: TileProgram, windows: Windows | None, tile: int, other: int) -> bool:
    """Whether the one tile can lie where the other does, and nothing else is there."""
    same = tiled.tiles[tile].types == tiled.tiles[other].types and tile not in tiled.kept
    if windows is None:
        blocks = [block.tile for own in tiled.outputs.values() for block in own]
        return same and blocks.count(other) == 1
    alone = all(windows.groups[windows.of[n]] == (n,) for n in (tile, other) if n in windows.of)
    return alone and same and {tile, other} <= windows.of.keys()

"""`verify_tiles` and `verify_regions` check what was made, knowing nothing of how it was made."""

from __future__ import annotations

from collections.abc import Sequence

from eindecomp.errors import PlanError
from eindecomp.layout.boxes import inside
from eindecomp.tra.tiles.ops import Region, TileProgram
from eindecomp.tra.tiles.regions import show_regions


def verify_tiles(tiled: TileProgram) -> None:
    """Raise unless each tile is made once, from blocks of tiles that are there by then."""
    made: set[int] = set()
    for op in tiled.ops:
        blocks = [block for block in op.reads if block is not None]
        outside = [b for b in blocks if not inside(b.box, tiled.tiles[b.tile].box)]
        if op.into in made or outside or not made.issuperset(op.sources):
            raise PlanError(f"this cannot be carried out where it stands: {tiled.show(op)}")
        made.add(op.into)
    if not made >= tiled.kept:
        raise PlanError(f"nothing makes {tiled.tiles[min(tiled.kept - made)]}, an output")


def verify_regions(tiled: TileProgram, regions: Sequence[Region]) -> None:
    """Raise unless regions in their order make all outputs, each from what is there by then."""
    there = {*tiled.loads}
    for number, region in enumerate(regions):
        own = {*region.reads}
        fits = region.number == number and own <= there and there.isdisjoint(region.writes)
        for op in region.ops:
            fits &= own.issuperset(op.sources) and op.into not in own
            fits &= tiled.tiles[op.into].memory == region.memory
            own.add(op.into)
        if not fits or not own.issuperset(region.writes):
            raise PlanError(f"this cannot run where it stands:\n{show_regions(tiled, [region])}")
        there.update(region.writes)
    if not there >= tiled.kept:
        raise PlanError(f"no region makes {tiled.tiles[min(tiled.kept - there)]}, an output")

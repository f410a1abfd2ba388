"""`while_there`: where memory is scarce, regions that read the same inputs follow each other."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from eindecomp.tra.tiles.ops import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eindecomp.tra.tiles.ops import TileProgram
    from eindecomp.tra.tiles.regions import Region


def while_there(tiled: TileProgram, regions: Sequence[Region]) -> tuple[Region, ...]:
    """The same regions, each followed by the one that gains most from what it has brought.

    That is one which can run, and whose inputs that are there take more bytes than what it makes
    for later regions. Where none gains, their own order is kept.
    """
    loads = {op.into for op in tiled.ops if op.kind is Kind.LOAD}
    readers: dict[int, list[int]] = defaultdict(list)
    for place, region in enumerate(regions):
        for tile in region.reads:
            readers[tile].append(place)
    missing = [len({*region.reads} - loads) for region in regions]
    waiting = dict(enumerate(regions))

    def nbytes(tiles: Iterable[int]) -> int:
        return sum(tiled.tiles[tile].nbytes for tile in tiles)

    def gain(place: int, here: set[int]) -> int:
        later = (tile for tile in regions[place].writes if tile not in tiled.kept)
        return nbytes(here.intersection(regions[place].reads)) - nbytes(later)

    ordered: list[Region] = []
    here: set[int] = set()
    while waiting:
        near = {n for tile in here for n in readers[tile] if n in waiting and not missing[n]}
        gains = {place: gain(place, here) for place in sorted(near)}
        place = max(gains, key=lambda place: gains[place], default=-1)
        if gains.get(place, 0) <= 0:
            place = next(iter(waiting))
        region = waiting.pop(place)
        ordered.append(replace(region, number=len(ordered)))
        here = loads.intersection(region.reads)
        for tile in region.writes:
            for reader in readers[tile]:
                missing[reader] -= 1
    return tuple(ordered)

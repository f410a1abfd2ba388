"""Windows: the bytes that tiles lie in when they are paged, alone or side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.engines.torch.host_memory import typed
from eindecomp.kernels.torch.dtypes import torch_type
from eindecomp.tra.tiles.ops import ALIGNMENT, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch import Tensor

    from eindecomp.engines.torch.ready_region import ReadyRegions
    from eindecomp.tra.tiles.ops import Tile, TileProgram


class Windows:
    """Which tiles share a window: matrices that are multiplied together, each other one alone."""

    def __init__(self, ready: ReadyRegions) -> None:
        self._tiles = ready.tiled.tiles
        crossing = {t for region in ready.regions for t in (*region.reads, *region.writes)}
        grouped = list(_side_by_side(ready))
        taken = {tile for group in grouped for tile in group}
        self.groups = [*grouped, *((tile,) for tile in sorted(crossing - taken))]
        self.of: dict[int, int] = {}
        """The window of each tile."""
        self._start: dict[int, int] = {}
        for number, group in enumerate(self.groups):
            at = 0
            for tile in group:
                self.of[tile], self._start[tile] = number, at
                at += _window_bytes(self._tiles[tile])

    def nbytes(self, window: int) -> int:
        """The bytes of a window."""
        return sum(_window_bytes(self._tiles[tile]) for tile in self.groups[window])

    def used(self, tiles: Iterable[int]) -> tuple[int, ...]:
        """The windows of tiles, each once."""
        return tuple(dict.fromkeys(self.of[tile] for tile in tiles))

    def arrays(self, tile: int, memory: Tensor) -> tuple[Tensor, ...]:
        """The arrays of a tile in the bytes of its window."""
        made, at = self._tiles[tile], self._start[tile]
        found: list[Tensor] = []
        for dtype, size in zip(made.types, _array_bytes(made), strict=True):
            found.append(typed(memory[at : at + size], torch_type(dtype), made.shape))
            at += _aligned(size)
        return tuple(found)

    def parts(self, window: int, start: int, nbytes: int) -> Iterator[tuple[int, int, int, int]]:
        """The tiles that have some bytes of a window: tile, its first byte, where it is, how many.

        Bytes between tiles belong to none.
        """
        for tile in self.groups[window]:
            at = self._start[tile]
            low, high = max(start, at), min(start + nbytes, at + self._tiles[tile].nbytes)
            if low < high:
                yield tile, low - at, low - start, high - low

    def name(self, window: int) -> str:
        """What is in a window."""
        return " ".join(str(self._tiles[tile]) for tile in self.groups[window])


def _side_by_side(ready: ReadyRegions) -> Iterator[tuple[int, ...]]:
    """Matrices that the same regions multiply by together, without gaps between them."""
    readers: dict[int, list[int]] = {}
    for region in ready.regions:
        for tile in region.reads:
            readers.setdefault(tile, []).append(region.number)
    taken: set[int] = set()
    for code in ready.codes:
        for join in code.joins:
            group = tuple(member.weight for member in join.members)
            exact = all(ready.tiled.tiles[t].nbytes % ALIGNMENT == 0 for t in group)
            together = all(readers[tile] == readers[group[0]] for tile in group)
            if exact and together and taken.isdisjoint(group):
                taken.update(group)
                yield group


def _array_bytes(tile: Tile) -> list[int]:
    """The bytes of each array of a tile."""
    elements = tile.nbytes // sum(dtype.itemsize for dtype in tile.types)
    return [elements * dtype.itemsize for dtype in tile.types]


def _window_bytes(tile: Tile) -> int:
    """The bytes of a tile, each of its arrays aligned."""
    return sum(_aligned(size) for size in _array_bytes(tile))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def renewed_tiles(
    tiled: TileProgram, tie: Mapping[str, str], windows: Windows | None = None
) -> dict[str, dict[int, int]]:
    """For each tied input, which of its tiles becomes which of its result's.

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

"""The disk as the last tier: which tiles of files the host keeps, and the way of all others."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from eindecomp.engines.space import available
from eindecomp.engines.torch.host_memory import typed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

    from eindecomp.engines.torch.file_tiles import FileTile
    from eindecomp.engines.torch.host_memory import HostMemory

_SHARE = 0.75  # of the memory that is available: the rest is for results, and for others
_SAMPLE = 32 << 20  # bytes of one request when the disk is measured
_SAMPLES = 8


class HostCopies:
    """Tiles of files that the host keeps, up to a limit; they go when nobody uses them."""

    def __init__(self, host: HostMemory, limit: int | None) -> None:
        """Without a limit, three quarters of the memory that is available are taken."""
        self.host, self._limit = host, limit
        self._kept: WeakValueDictionary[FileTile, torch.Tensor] = WeakValueDictionary()

    @property
    def room(self) -> int:
        """How many bytes more may be kept."""
        taken = sum(copy.nbytes for copy in self._kept.values())
        if self._limit is None:
            self._limit = int(_SHARE * (available() or 0)) + taken
        return max(0, self._limit - taken)

    def chosen(self, groups: Iterable[Sequence[FileTile]]) -> set[FileTile]:
        """As many groups of tiles as there is room for, each as a whole, the first ones first."""
        found: set[FileTile] = set()
        room = self.room
        for group in groups:
            new = {tile for tile in group if tile not in self._kept and tile not in found}
            size = sum(tile.nbytes for tile in new)
            if size <= room:
                room -= size
                found.update(group)
        return found

    def copy(self, tile: FileTile) -> torch.Tensor:
        """A tile in the host's memory, read once as long as somebody has it."""
        known = self._kept.get(tile)
        if known is None:
            memory = self.host.empty(tile.nbytes)
            tile.read(0, memory)
            known = self._kept[tile] = typed(memory, tile.mapped.dtype, tile.shape)
        return known


def measure_disk(tiles: Sequence[FileTile], host: HostMemory) -> float:
    """How many bytes of these tiles can be read in a second, by some of them."""
    step = max(1, len(tiles) // _SAMPLES)
    memory = host.empty(_SAMPLE)
    seconds, count = 0.0, 0
    for tile in tiles[::step][:_SAMPLES]:
        part = memory[: min(_SAMPLE, tile.nbytes)]
        begin = perf_counter()
        tile.read(0, part)
        seconds += perf_counter() - begin
        count += part.nbytes
    return max(1.0, count / max(seconds, 1e-9))

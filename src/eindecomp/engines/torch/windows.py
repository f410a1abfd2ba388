"""Windows: the bytes that tiles lie in when they are paged; what regions and links take.

Seconds and bytes are measured once in a process.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache, partial
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import torch

from eindecomp.engines.torch.paged_memory import HostMemory, typed
from eindecomp.kernels.torch.tensors import torch_type
from eindecomp.kernels.torch.timing import seconds_of
from eindecomp.tra.paging.workload import Links
from eindecomp.tra.tiles.ops import ALIGNMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
    readers: dict[int, list[int]] = defaultdict(list)
    for region in ready.regions:
        for tile in region.reads:
            readers[tile].append(region.number)
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
    loads: dict[str, list[int]] = defaultdict(list)
    for tile in sorted(tiled.loads):
        loads[tiled.tiles[tile].tensor].append(tile)
    found: dict[str, dict[int, int]] = {}
    taken: set[int] = set()
    for old, new in tie.items():
        blocks = tiled.outputs.get(new, ())  # not those that are only a part of their tile
        made = {b.box: b.tile for b in blocks if b.box == tiled.tiles[b.tile].box}
        pairs = {tile: made.get(tiled.tiles[tile].box) for tile in loads[old]}
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


def _fit(tiled: TileProgram, windows: Windows | None, tile: int, other: int) -> bool:
    """Whether the one tile can lie where the other does, and nothing else is there."""
    same = tiled.tiles[tile].types == tiled.tiles[other].types and tile not in tiled.kept
    if windows is None:
        blocks = [block.tile for own in tiled.outputs.values() for block in own]
        return same and blocks.count(other) == 1
    alone = all(windows.groups[windows.of[n]] == (n,) for n in (tile, other) if n in windows.of)
    return alone and same and {tile, other} <= windows.of.keys()


_TURNS = 3
_BUSY = 0.3  # seconds for which a GPU is kept busy to see at which clock it stays
_MOST_TURNS = 300
_LINK = 64 << 20  # bytes that are copied to measure a link
_COPIES = 24  # of which the fastest counts: others may use the link or the host's memory meanwhile


class RegionCost(NamedTuple):
    """What a region takes beside the tiles that it reads and writes."""

    seconds: float
    workspace: int


_COSTS: dict[object, RegionCost] = {}


def measure_region(
    ready: ReadyRegions, windows: Windows, number: int, scalars: Sequence[torch.Tensor]
) -> RegionCost:
    """Carry out a region on made-up numbers, unless an equal one was measured before."""
    region, device = ready.regions[number], ready.libraries[0].device
    key = ready.codes[number].key, ready.fuse, device
    if key in _COSTS:
        return _COSTS[key]
    memory = {
        window: torch.zeros(windows.nbytes(window), dtype=torch.uint8, device=device)
        for window in windows.used((*region.reads, *region.writes))
    }
    arrays, into = (
        [array for tile in tiles for array in windows.arrays(tile, memory[windows.of[tile]])]
        for tiles in (region.reads, region.writes)
    )
    for array in arrays:
        if array.dtype.is_floating_point:  # indices stay 0, which is always in range
            array.normal_(0, 0.02)

    work = partial(ready.bound(number, arrays, into), scalars)
    work()
    _COSTS[key] = RegionCost(_sustained(work, device), _workspace(work, device))
    return _COSTS[key]


def _sustained(work: Callable[[], object], device: torch.device) -> float:
    """How long some work takes where more follows: a GPU that is kept busy lowers its clock."""
    taken = [seconds_of(work, device) for _ in range(_TURNS)]
    if device.type == "cuda":
        turns = min(_MOST_TURNS, int(_BUSY / max(median(taken), 1e-6)))
        taken += [seconds_of(work, device) for _ in range(turns)]
    return median(taken[-_TURNS:])


def _workspace(work: Callable[[], object], device: torch.device) -> int:
    """The most bytes that some work takes of a GPU on top of what is held.

    Torch takes more than its tensors need, but less where it has kept room between others.
    """
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    work()
    return max(
        torch.cuda.max_memory_allocated(device) - allocated,
        torch.cuda.max_memory_reserved(device) - reserved,
    )


@cache
def measure_links(device: torch.device) -> Links:
    """How fast host and GPU copy to each other, and the GPU to itself."""
    if device.type != "cuda":
        return Links(10e9, 10e9, 1e9)
    memory = HostMemory(pinned=True)
    host, back = memory.empty(_LINK), memory.empty(_LINK)
    gpu, other = (torch.empty(_LINK, dtype=torch.uint8, device=device) for _ in range(2))

    def speed(*copies: tuple[torch.Tensor, torch.Tensor]) -> float:
        work = partial(_copy_at_once, copies, device)
        return _LINK / min(seconds_of(work, device) for _ in range(_COPIES))

    to_gpu, to_host, within_gpu = speed((gpu, host)), speed((back, other)), speed((other, gpu))
    both = min(1.0, speed((gpu, host), (back, other)) / min(to_gpu, to_host))
    return Links(to_gpu, to_host, 1e9, latency=5e-6, within_gpu=within_gpu, both=both)


def _copy_at_once(
    copies: Sequence[tuple[torch.Tensor, torch.Tensor]], device: torch.device
) -> None:
    """Copy targets from sources, each in a stream of its own."""
    current = torch.cuda.current_stream(device)
    streams = [torch.cuda.Stream(device) for _ in copies]
    for stream in streams:
        stream.wait_stream(current)
    for stream, (target, source) in zip(streams, copies, strict=True):
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
    for stream in streams:
        current.wait_stream(stream)

"""Windows: the bytes that tiles lie in when they are paged; what regions and links take.

Seconds and bytes are measured once in a process.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from eindecomp.engines.torch.paged_memory import HostMemory, typed
from eindecomp.engines.torch.ready_region import ReadyRegions
from eindecomp.kernels.torch.tensors import torch_type
from eindecomp.kernels.torch.timing import seconds_of
from eindecomp.layout.boxes import volume
from eindecomp.tra.paging.workload import Links
from eindecomp.tra.tiles.ops import TileProgram, window_bytes


class Windows:
    """The windows of the tiles that regions read and write, each of one tile."""

    def __init__(self, ready: ReadyRegions) -> None:
        self._every = ready.tiled.tiles
        self.tiles = sorted({t for each in ready.regions for t in (*each.reads, *each.writes)})
        """The tile of each window."""
        self._known: dict[int, list[tuple[int, int]]] = {}
        self.of = {tile: number for number, tile in enumerate(self.tiles)}

    def nbytes(self, tile: int) -> int:
        """The bytes of a tile's window."""
        return self._spans(tile)[-1][1]

    def arrays(self, tile: int, memory: Tensor) -> tuple[Tensor, ...]:
        """The arrays of a tile in the bytes of its window."""
        made = self._every[tile]
        return tuple(
            typed(memory[start:end], torch_type(dtype), made.shape)
            for dtype, (start, end) in zip(made.types, self._spans(tile), strict=True)
        )

    def _spans(self, tile: int) -> list[tuple[int, int]]:
        """Where each array of a tile begins and ends in its window."""
        if tile in self._known:
            return self._known[tile]
        spans = self._known[tile] = []
        at = 0
        for dtype in self._every[tile].types:
            size = volume(self._every[tile].box) * dtype.itemsize
            spans.append((at, at + size))
            at += window_bytes(size)
        return spans


def renewed_tiles(
    tiled: TileProgram, tie: Mapping[str, str], windows: Windows | None = None
) -> dict[str, dict[int, int]]:
    """For each tied input, the tile of its result that becomes each of its tiles.

    Only inputs that are cut as their results are among them, and lie in windows if there are any.
    """
    loads: dict[str, list[int]] = defaultdict(list)
    for tile in sorted(tiled.loads):
        loads[tiled.tiles[tile].tensor].append(tile)
    uses = Counter(block.tile for own in tiled.outputs.values() for block in own)
    renewed: dict[str, dict[int, int]] = {}
    taken: set[int] = set()

    def fit(tile: int, other: int) -> bool:
        """Whether the one tile can lie where the other does, and nothing else is there."""
        same = tiled.tiles[tile].types == tiled.tiles[other].types and tile not in tiled.kept
        free = uses[other] == 1 if windows is None else {tile, other} <= windows.of.keys()
        return same and free and other not in taken

    for old, new in tie.items():
        blocks = tiled.outputs.get(new, ())  # not those that are only a part of their tile
        made = {b.box: b.tile for b in blocks if b.box == tiled.tiles[b.tile].box}
        pairs = {tile: made.get(tiled.tiles[tile].box) for tile in loads[old]}
        fitting = {
            tile: other for tile, other in pairs.items() if other is not None and fit(tile, other)
        }
        if fitting == pairs:
            renewed[old] = fitting
            taken.update(fitting.values())
    return renewed


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

    def made_up(tile: int) -> tuple[Tensor, ...]:
        memory = torch.zeros(windows.nbytes(tile), dtype=torch.uint8, device=device)
        return windows.arrays(tile, memory)

    arrays, into = (
        [array for tile in tiles for array in made_up(tile)]
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
    host = HostMemory(pinned=True).empty(_LINK)
    gpu, other = (torch.empty(_LINK, dtype=torch.uint8, device=device) for _ in range(2))

    def speed(target: Tensor, source: Tensor) -> float:
        work = partial(target.copy_, source, non_blocking=True)
        return _LINK / min(seconds_of(work, device) for _ in range(_COPIES))

    to_gpu, to_host, within_gpu = speed(gpu, host), speed(host, gpu), speed(other, gpu)
    return Links(to_gpu, to_host, 1e9, latency=5e-6, within_gpu=within_gpu)

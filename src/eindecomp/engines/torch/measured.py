"""What regions and links take on this machine, measured once in a process."""

from __future__ import annotations

from functools import cache, partial
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import torch

from eindecomp.engines.torch.host_memory import HostMemory
from eindecomp.kernels.torch.fastest import seconds_of
from eindecomp.tra.paging.workload import Links

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.engines.torch.ready_region import ReadyRegions
    from eindecomp.engines.torch.windows import Windows

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
    key = ready.codes[number].key, ready.fuse, ready.libraries[0].device
    if key not in _COSTS:
        _COSTS[key] = _measured(ready, windows, number, scalars)
    return _COSTS[key]


def _measured(
    ready: ReadyRegions, windows: Windows, number: int, scalars: Sequence[torch.Tensor]
) -> RegionCost:
    region, device = ready.regions[number], ready.libraries[0].device
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
    held = _begin_to_measure(device)
    work()
    workspace = _taken_since(held, device)
    return RegionCost(_sustained(work, device), workspace)


def _sustained(work: Callable[[], object], device: torch.device) -> float:
    """How long some work takes where more follows: a GPU that is kept busy lowers its clock."""
    taken = [seconds_of(work, device) for _ in range(_TURNS)]
    if device.type == "cuda":
        turns = min(_MOST_TURNS, int(_BUSY / max(median(taken), 1e-6)))
        taken += [seconds_of(work, device) for _ in range(turns)]
    return median(taken[-_TURNS:])


def _begin_to_measure(device: torch.device) -> tuple[int, int]:
    """What tensors take of a GPU, and what torch has taken for them, keeping none for later."""
    if device.type != "cuda":
        return 0, 0
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)


def _taken_since(held: tuple[int, int], device: torch.device) -> int:
    """The most that was taken on top of that.

    Torch takes more than its tensors need, but less where it has kept room between others.
    """
    if device.type != "cuda":
        return 0
    allocated, reserved = held
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

"""Running regions on a GPU whose memory does not hold all tiles: they come and go by a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.engines.torch.host_memory import HostMemory, typed
from eindecomp.engines.torch.lanes import Lane
from eindecomp.engines.torch.measured import measure_links, measure_region
from eindecomp.kernels.torch.dtypes import torch_type
from eindecomp.tra.paging.make import ALIGNMENT, arena_bytes, make_schedule
from eindecomp.tra.paging.schedule import COMPUTE, TO_GPU, TO_HOST, Fetch, Read, Run, Store
from eindecomp.tra.paging.workload import Begins, Ends, Paged, Task, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.engines.torch.ready_region import ReadyRegions
    from eindecomp.tra.paging.schedule import Schedule
    from eindecomp.tra.paging.workload import Links
    from eindecomp.tra.tiles.ops import Tile

    Tensor = torch.Tensor
    Values = dict[int, tuple[Tensor, ...]]

MARGIN = 64 << 20
"""Bytes of the limit that are left to torch: workspaces of BLAS, scalars, rounding."""


class Paging:
    """Regions under a limit on the GPU's memory."""

    def __init__(self, ready: ReadyRegions, limit: int, host: HostMemory) -> None:
        self.ready, self.limit, self.host = ready, limit, host
        self.device = ready.libraries[0].device
        self.links: Links = measure_links(self.device)
        self._schedules: dict[frozenset[int], Replay] = {}

    def run(self, values: Values, scalars: Mapping[str, Any], lasting: frozenset[int]) -> Values:
        """The tiles that are kept, on the host, from those that were loaded, on the host, too.

        `lasting` are those that are the same in every run.
        """
        given = self.ready.scalars(scalars)[0]
        if lasting not in self._schedules:
            self._schedules.clear()  # their arenas would not fit beside each other
            schedule = self.schedule(lasting, given)
            self._schedules[lasting] = Replay(self, schedule)
        return self._schedules[lasting].run(values, given)

    def close(self) -> None:
        """Let go of the arena."""
        self._schedules.clear()

    def schedule(self, lasting: frozenset[int], scalars: Sequence[Tensor]) -> Schedule:
        """What comes, goes and is computed when and where."""
        workload = self.workload(lasting, scalars)
        return make_schedule(workload, self.links, arena_bytes(workload, self.limit, MARGIN))

    def workload(self, lasting: frozenset[int], scalars: Sequence[Tensor]) -> Workload:
        """The regions as tasks, with the seconds and workspaces that they were measured to take."""
        tiles, regions = self.ready.tiled.tiles, self.ready.regions
        made = {tile for region in regions for tile in region.writes}
        names = {tile for region in regions for tile in (*region.reads, *region.writes)}
        self.tiles = sorted(names)
        number = {tile: place for place, tile in enumerate(self.tiles)}
        kept = self.ready.tiled.kept
        tensors = tuple(
            Paged(
                number[tile],
                str(tiles[tile]),
                window_bytes(tiles[tile]),
                Begins.MADE if tile in made else Begins.HOST,
                Ends.HOST if tile in kept else Ends.NOWHERE,
                tile in lasting,
            )
            for tile in self.tiles
        )
        costs = [measure_region(self.ready, region.number, scalars) for region in regions]
        tasks = tuple(
            Task(
                " ".join(tiles[tile].tensor for tile in region.writes),
                tuple(number[tile] for tile in region.reads),
                tuple(number[tile] for tile in region.writes),
                cost.workspace,
                cost.seconds,
            )
            for region, cost in zip(regions, costs, strict=True)
        )
        return Workload(tensors, tasks)


@dataclass(eq=False)
class Replay:
    """A schedule with its arena and lanes, to be carried out again and again."""

    paging: Paging
    schedule: Schedule

    def __post_init__(self) -> None:
        device = self.paging.device
        self.arena = torch.empty(self.schedule.arena, dtype=torch.uint8, device=device)
        self.lanes = {
            COMPUTE: Lane(device, current=True), TO_GPU: Lane(device), TO_HOST: Lane(device)
        }  # fmt: skip
        self.stream_of = [action.stream for action in self.schedule.actions]
        self.awaited = {
            wait
            for action in self.schedule.actions
            for wait in action.waits
            if self.stream_of[wait] != action.stream
        }
        self._resident: dict[int, object] = {}

    def run(self, values: Values, scalars: Sequence[Tensor]) -> Values:
        """Carry out all actions: the tiles that are kept, on the host."""
        self._load_resident(values)
        stored: dict[int, Tensor] = {}
        marks: dict[int, Any] = {}
        start = self.lanes[COMPUTE].mark()
        for lane in self.lanes.values():
            lane.wait(start)
        for place, action in enumerate(self.schedule.actions):
            lane = self.lanes[action.stream]
            for wait in action.waits:
                if self.stream_of[wait] != action.stream:
                    lane.wait(marks[wait])
            with lane.work():
                match action:
                    case Run():
                        self._compute(action, scalars)
                    case Fetch():
                        self._fetch(action, values, stored)
                    case Store():
                        memory = stored[action.tensor] = self.paging.host.empty(action.nbytes)
                        memory.copy_(self._bytes(action.offset, action.nbytes), non_blocking=True)
                    case Read():
                        raise NotImplementedError
            if place in self.awaited:
                marks[place] = lane.mark()
        for lane in self.lanes.values():
            lane.finish()
        tiles, kept = self.paging.tiles, self.paging.ready.tiled.kept
        return {
            tile: self._arrays(tile, stored[number])
            for number, tile in enumerate(tiles)
            if tile in kept
        }

    def _load_resident(self, values: Values) -> None:
        """Bring what stays to the GPU, unless it is there from the run before."""
        for window in self.schedule.resident:
            tile = self.paging.tiles[window.tensor]
            source = values[tile]
            if self._resident.get(tile) is not source[0]:
                self._resident[tile] = source[0]
                for target, array in zip(self._views(tile, window.offset), source, strict=True):
                    target.copy_(array)

    def _compute(self, action: Run, scalars: Sequence[Tensor]) -> None:
        region = self.paging.ready.regions[action.task]
        arrays, into = (
            [
                array
                for tile, at in zip(tiles, offsets, strict=True)
                for array in self._views(tile, at)
            ]
            for tiles, offsets in ((region.reads, action.reads), (region.writes, action.writes))
        )
        self.paging.ready.call(action.task, arrays, scalars, into)

    def _fetch(self, action: Fetch, values: Values, stored: Mapping[int, Tensor]) -> None:
        tile = self.paging.tiles[action.tensor]
        if action.tensor in stored:
            window = self._bytes(action.offset + action.start, action.nbytes)
            own = stored[action.tensor][action.start : action.start + action.nbytes]
            window.copy_(own, non_blocking=True)
            return
        for target, array in zip(self._views(tile, action.offset), values[tile], strict=True):
            target.copy_(array, non_blocking=True)

    def _bytes(self, offset: int, nbytes: int) -> Tensor:
        return self.arena[offset : offset + nbytes]

    def _views(self, tile: int, offset: int) -> tuple[Tensor, ...]:
        made = self.paging.ready.tiled.tiles[tile]
        return self._arrays(tile, self._bytes(offset, window_bytes(made)))

    def _arrays(self, tile: int, memory: Tensor) -> tuple[Tensor, ...]:
        """The arrays of a tile in some bytes."""
        made = self.paging.ready.tiled.tiles[tile]
        found: list[Tensor] = []
        at = 0
        for dtype, size in zip(made.types, array_bytes(made), strict=True):
            found.append(typed(memory[at : at + size], torch_type(dtype), made.shape))
            at += -(-size // ALIGNMENT) * ALIGNMENT
        return tuple(found)


def array_bytes(tile: Tile) -> list[int]:
    """The bytes of each array of a tile."""
    elements = tile.nbytes // sum(dtype.itemsize for dtype in tile.types)
    return [elements * dtype.itemsize for dtype in tile.types]


def window_bytes(tile: Tile) -> int:
    """The bytes of a tile in the arena, each of its arrays aligned."""
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in array_bytes(tile))

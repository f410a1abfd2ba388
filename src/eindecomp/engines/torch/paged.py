"""Running regions on a GPU whose memory does not hold all tiles: they come and go by a schedule."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.engines.torch.host_memory import HostMemory
from eindecomp.engines.torch.lanes import Lane
from eindecomp.engines.torch.measured import RegionCost, measure_links, measure_region
from eindecomp.engines.torch.windows import Windows
from eindecomp.tra.paging.make import arena_bytes, check_arena, make_schedule
from eindecomp.tra.paging.schedule import COMPUTE, TO_GPU, TO_HOST, Fetch, Read, Run, Store
from eindecomp.tra.paging.simulate import simulate
from eindecomp.tra.paging.workload import Begins, Ends, Paged, Task, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.engines.torch.heard import Heard
    from eindecomp.engines.torch.ready_region import ReadyRegions
    from eindecomp.tra.paging.schedule import Schedule
    from eindecomp.tra.paging.workload import Links

    Tensor = torch.Tensor
    Values = dict[int, tuple[Tensor, ...]]

MARGIN = 64 << 20
"""Bytes of the limit that are left to torch: workspaces of BLAS, scalars, rounding."""


class Paging:
    """Regions under a limit on the GPU's memory."""

    def __init__(self, ready: ReadyRegions, limit: int, host: HostMemory) -> None:
        self.ready, self.limit, self.host = ready, limit, host
        self.device = ready.libraries[0].device
        self.windows = Windows(ready)
        unknown = [RegionCost(0.0, 0)] * len(ready.regions)
        workload = self.workload(frozenset(), unknown)
        check_arena(workload, arena_bytes(workload, limit, MARGIN))  # before anything is measured
        if self.device.type == "cuda":
            take_memory_in_pages()
        self.links: Links = measure_links(self.device)
        self._schedules: dict[frozenset[int], Replay] = {}

    def run(
        self,
        values: Values,
        scalars: Mapping[str, Any],
        lasting: frozenset[int],
        heard: Heard | None = None,
    ) -> Values:
        """The tiles that are kept, on the host, from those that were loaded, on the host, too.

        `lasting` are those that are the same in every run; `heard` tells of every region.
        """
        given = self.ready.scalars(scalars)[0]
        if lasting not in self._schedules:
            self._schedules.clear()  # their arenas would not fit beside each other
            schedule = self.schedule(lasting, given)
            self._schedules[lasting] = Replay(self, schedule)
        return self._schedules[lasting].run(values, given, heard)

    @property
    def arena(self) -> int:
        """The bytes of the GPU in which tensors come and go."""
        return max((replay.schedule.arena for replay in self._schedules.values()), default=0)

    @property
    def replay(self) -> Replay | None:
        """What the last run carried out; None before the first one."""
        return next(iter(self._schedules.values()), None)

    def close(self) -> None:
        """Let go of the arena."""
        self._schedules.clear()

    def schedule(self, lasting: frozenset[int], scalars: Sequence[Tensor]) -> Schedule:
        """What comes, goes and is computed when and where."""
        regions, windows = self.ready.regions, self.windows
        costs = [measure_region(self.ready, windows, r.number, scalars) for r in regions]
        workload = self.workload(lasting, costs)
        return make_schedule(workload, self.links, arena_bytes(workload, self.limit, MARGIN))

    def workload(self, lasting: frozenset[int], costs: Sequence[RegionCost]) -> Workload:
        """The regions as tasks, with the seconds and workspaces that they were measured to take."""
        regions, windows = self.ready.regions, self.windows
        made = {tile for region in regions for tile in region.writes}
        kept = self.ready.tiled.kept
        tensors = tuple(
            Paged(
                number,
                windows.name(number),
                windows.nbytes(number),
                Begins.MADE if group[0] in made else Begins.HOST,
                Ends.HOST if group[0] in kept else Ends.NOWHERE,
                lasting.issuperset(group),
            )
            for number, group in enumerate(windows.groups)
        )
        tasks = tuple(
            Task(
                " ".join(self.ready.tiled.tiles[tile].tensor for tile in region.writes),
                windows.used(region.reads),
                windows.used(region.writes),
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
        if device.type == "cuda":
            torch.cuda.empty_cache()  # what was measured with
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
        self._resident: dict[int, Tensor] = {}
        """What each resident tile was copied from; being held, its memory is of nobody else."""

    @cached_property
    def predicted(self) -> float:
        """The seconds that a run should take."""
        return simulate(self.schedule, self.paging.links).seconds

    def run(self, values: Values, scalars: Sequence[Tensor], heard: Heard | None = None) -> Values:
        """Carry out all actions: the tiles that are kept, on the host."""
        self._load_resident(values)
        stored: dict[int, Tensor] = {}
        try:
            self._carry_out(values, scalars, stored, heard)
        finally:  # also of a run that was stopped: the next one uses the same memory
            for lane in self.lanes.values():
                lane.finish()
        windows, kept = self.paging.windows, self.paging.ready.tiled.kept
        nothing = self.paging.host.empty(0)  # of which no schedule tells
        return {
            tile: windows.arrays(tile, stored.get(number, nothing))
            for tile, number in windows.of.items()
            if tile in kept
        }

    def _carry_out(
        self,
        values: Values,
        scalars: Sequence[Tensor],
        stored: dict[int, Tensor],
        heard: Heard | None,
    ) -> None:
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
                        with nullcontext() if heard is None else heard.region(action.task):
                            self._compute(action, scalars)
                    case Fetch():
                        self._fetch(action, values, stored)
                    case Store():
                        memory = stored[action.tensor] = self.paging.host.empty(action.nbytes)
                        memory.copy_(self._bytes(action.offset, action.nbytes), non_blocking=True)
                    case Read():
                        raise AssertionError("all that this engine pages begins on the host")
            if place in self.awaited:
                marks[place] = lane.mark()

    def _load_resident(self, values: Values) -> None:
        """Bring what stays to the GPU, unless it is there from the run before."""
        for window in self.schedule.resident:
            own = self._bytes(window.offset, self.paging.windows.nbytes(window.tensor))
            for tile in self.paging.windows.groups[window.tensor]:
                source = values[tile]
                known = self._resident.get(tile)
                if known is None or known.data_ptr() != source[0].data_ptr():
                    self._resident[tile] = source[0]
                    self._copy(tile, own, source)

    def _compute(self, action: Run, scalars: Sequence[Tensor]) -> None:
        paging, task = self.paging, self.schedule.workload.tasks[action.task]
        at = dict(zip((*task.reads, *task.writes), (*action.reads, *action.writes), strict=True))

        def arrays(tiles: Sequence[int]) -> list[Tensor]:
            return [array for tile in tiles for array in self._views(tile, at)]

        region = paging.ready.regions[action.task]
        paging.ready.call(action.task, arrays(region.reads), scalars, arrays(region.writes))

    def _fetch(self, action: Fetch, values: Values, stored: Mapping[int, Tensor]) -> None:
        if action.tensor in stored:
            own = stored[action.tensor][action.start : action.start + action.nbytes]
            target = self._bytes(action.offset + action.start, action.nbytes)
            target.copy_(own, non_blocking=True)
            return
        own = self._bytes(action.offset, action.nbytes)
        for tile in self.paging.windows.groups[action.tensor]:
            self._copy(tile, own, values[tile])

    def _copy(self, tile: int, memory: Tensor, source: Sequence[Tensor]) -> None:
        targets = self.paging.windows.arrays(tile, memory)
        for target, array in zip(targets, source, strict=True):
            target.copy_(array, non_blocking=True)

    def _views(self, tile: int, at: Mapping[int, int]) -> tuple[Tensor, ...]:
        """The arrays of a tile, whose window is at a place in the arena."""
        windows = self.paging.windows
        number = windows.of[tile]
        return windows.arrays(tile, self._bytes(at[number], windows.nbytes(number)))

    def _bytes(self, offset: int, nbytes: int) -> Tensor:
        return self.arena[offset : offset + nbytes]


def take_memory_in_pages() -> None:
    """Let torch map pages of the GPU as it needs them: it then holds little more than it uses."""
    # There is no public way to say so once torch has started.
    inner: Any = vars(torch)["_C"]
    settings = getattr(inner, "_accelerator_setAllocatorSettings", None)
    if settings is not None:
        settings("expandable_segments:True")

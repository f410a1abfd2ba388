"""Running regions on a GPU whose memory does not hold all tiles: they come and go by a schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.engines.tensor import Tensor as EngineTensor
from eindecomp.engines.torch.disk_tier import FileTile, HostCopies, file_tile, measure_disk
from eindecomp.engines.torch.loads import Loads, has_filled_indices
from eindecomp.engines.torch.paged_memory import ArenaMemory, HostMemory, Tenant, leave_arena
from eindecomp.engines.torch.ready_region import Heard, ReadyRegions
from eindecomp.engines.torch.replay import Replay
from eindecomp.engines.torch.windows import (
    RegionCost,
    Windows,
    measure_links,
    measure_region,
    renewed_tiles,
)
from eindecomp.tra.paging.make import arena_bytes, check_arena, make_schedule, spread
from eindecomp.tra.paging.schedule import Schedule
from eindecomp.tra.paging.workload import Begins, Links, Paged, Staging, Task, Workload

if TYPE_CHECKING:
    from eindecomp.engines.torch.paged_memory import Blocks

    Tensor = torch.Tensor
    Given = Mapping[str, Any]
    Values = dict[int, tuple[Tensor, ...]]
    Files = Mapping[int, FileTile]

MARGIN = 64 << 20
"""Bytes of the limit that are left to torch: workspaces of BLAS, scalars, rounding."""


class Paging:
    """Regions under a limit on the GPU's memory, with the same methods as `Resident`."""

    def __init__(
        self,
        ready: ReadyRegions,
        loads: Loads,
        limit: int,
        host: HostMemory,
        copies: HostCopies,
        memory: ArenaMemory,
        tie: Mapping[str, str],
    ) -> None:
        """`tie` gives for an input the result that becomes it in the next run."""
        self.ready, self.limit, self.host, self.copies = ready, limit, host, copies
        self.loads, self.memory = loads, memory
        self.device = ready.libraries[0].device
        self.windows = Windows(ready)
        self.tie = tie
        self.renewed = renewed_tiles(ready.tiled, tie, self.windows)
        self.costs = [RegionCost(0.0, 0)] * len(ready.regions)
        workload = self.workload(frozenset())
        check_arena(workload, arena_bytes(workload, limit, MARGIN))  # before anything is measured
        self._is_measured = False
        if not has_filled_indices(ready.tiled):  # which are only checked when there are scalars
            with memory.turn():
                self._measure(ready.scalars(dict.fromkeys(ready.tiled.program.graph.scalars, 1))[0])
        self._replay: Replay | None = None
        self._key: object = None
        """What the latest schedule takes to stay."""

    def _measure(self, scalars: Sequence[Tensor]) -> None:
        """Find out what links and regions take, and whether workspaces leave room enough."""
        self.memory.free()  # there is no room beside it
        if self.device.type == "cuda":
            take_memory_in_pages()
        self.links: Links = measure_links(self.device)
        numbers = range(len(self.ready.regions))
        self.costs = [measure_region(self.ready, self.windows, each, scalars) for each in numbers]
        self._is_measured = True
        workload = self.workload(frozenset())
        check_arena(workload, arena_bytes(workload, self.limit, MARGIN))

    def run(
        self, inputs: Given, scalars: Given, donated: Collection[str], heard: Heard | None = None
    ) -> Values:
        """The tiles of results, on the host or in the arena; `heard` tells of every region.

        Donated tensors are still there if the run fails.
        """
        tiles, load = self.loads.names, partial(self.loads.find, inputs)
        own, (lasting, passing) = self.ready.scalars(scalars)[0], self._given(inputs, donated)
        staying = {name: tensor for name, tensor in passing.items() if self._stays(name, tensor)}
        self.memory.evacuate([tensor.held() for tensor in staying.values()])
        latest = {} if self.schedule is None else self.schedule.renewed
        left = (tile for name in staying for tile in self.renewed[name])
        there = frozenset(tile for tile in left if self.windows.of[tile] in latest)
        values = load([tile for tile in tiles if tile not in there])
        replay = self._replay_of(values, own, lasting, passing)
        if there and self.memory.user is not replay:
            self.memory.evacuate()
            staying, there = {}, frozenset[int]()
            values |= load([tile for tile in tiles if tile not in values])
        with self._lent(staying, replay):
            return replay.run(values, own, heard, there)

    def _given(
        self, inputs: Given, donated: Collection[str]
    ) -> tuple[frozenset[int], dict[str, EngineTensor]]:
        """The tiles of inputs that stay as they are, and the inputs that are given up.

        These are tied: in the next run a result takes the place of each.
        """
        changing = {*self.tie, *donated}
        names = {
            name
            for name, given in inputs.items()
            if isinstance(given, EngineTensor) and name not in changing
        }
        lasting = frozenset(tile for tile, name in self.loads.names.items() if name in names)
        times = Counter(id(given) for given in inputs.values())
        passing = {
            name: inputs[name]
            for name in self.renewed
            if name in donated and times[id(inputs[name])] == 1
        }
        return lasting, passing

    @contextmanager
    def turn(self, inputs: Given) -> Generator[None]:
        """Whoever is inside has the arena alone."""
        for given in self.loads.new(inputs):  # before this run has its turn: others wait for theirs
            leave_arena(given, but=self.memory)
        with self.memory.turn():
            yield

    @contextmanager
    def _lent(self, staying: Mapping[str, EngineTensor], replay: Replay) -> Generator[None]:
        """Let nobody read what a run may overwrite; if it fails, give back what is whole."""
        tenants: dict[str, Tenant] = {name: tensor.held() for name, tensor in staying.items()}
        blocks = {name: {**tenant} for name, tenant in tenants.items()}
        for tenant in tenants.values():
            tenant.clear()
        whole: set[str] = set()
        try:
            yield
        except BaseException:
            whole = {name for name in tenants if replay.overwritten.isdisjoint(self.renewed[name])}
            raise
        finally:
            for name, tenant in tenants.items():
                if name in whole:
                    tenant.update(blocks[name])
                else:
                    staying[name].release()

    def _stays(self, name: str, tensor: EngineTensor) -> bool:
        """Whether a run reads an input where the last one has left it in the arena."""
        data = tensor.held()
        ours = isinstance(data, Tenant) and data.memory is self.memory
        is_latest = self._replay is not None and self.memory.user is self._replay
        return ours and is_latest and data.name == self.tie[name]

    def _replay_of(
        self,
        values: Values,
        scalars: Sequence[Tensor],
        lasting: frozenset[int],
        passing: Collection[str],
    ) -> Replay:
        """What carries out a run; it is made anew where other things stay than in the last one."""
        places = {tile: file_tile(arrays[0]) for tile, arrays in values.items()}
        files = {tile: file for tile, file in places.items() if file is not None}
        renewing = frozenset(
            name for name in passing if files.keys().isdisjoint(self.renewed[name])
        )
        key = lasting, renewing, tuple(files.items())
        if not self._is_measured:
            self._measure(scalars)
        if self._replay is None or key != self._key:
            self._replay = None  # what the host keeps for it is in the way
            self._replay, self._key = self.replay(lasting, files, renewing), key
        return self._replay

    def housed(self, name: str, blocks: Blocks) -> Blocks:
        """The blocks of a result, of which some may stay in the arena."""
        return self.memory.housed(name, blocks)

    def ended(self, made: Mapping[str, EngineTensor], start: float) -> None:
        """Wait until the device has ended."""
        del made, start
        self.ready.synchronize()

    @property
    def held(self) -> int:
        """The bytes of the GPU in which tensors come and go."""
        return 0 if self._replay is None else self._replay.schedule.arena

    @property
    def schedule(self) -> Schedule | None:
        """What the last run carried out; None before the first one."""
        return None if self._replay is None else self._replay.schedule

    def close(self) -> None:
        """Let go of the arena, if it is used for this, and of what the host keeps."""
        if self._replay is not None:
            self.memory.free(self._replay)
        self._replay = None

    def replay(
        self, lasting: frozenset[int], files: Files, renewing: Collection[str] = ()
    ) -> Replay:
        """A schedule of what comes, goes and is computed when and where, made ready to run."""
        # Where the host cannot keep all tiles, those that are read from disk lie evenly between.
        used = dict.fromkeys(tile for region in self.ready.regions for tile in region.reads)
        chosen = self.copies.chosen(spread([files[t] for t in used if t in files and t in lasting]))
        copies = {tile: self.copies.copy(file) for tile, file in files.items() if file in chosen}
        read = {tile: file for tile, file in files.items() if tile not in copies}
        workload, links = self.workload(lasting, read, renewing), self.links
        staging = Staging()
        if read:
            links = replace(links, from_disk=measure_disk([*read.values()], self.host))
            largest = max(t.nbytes for t in workload.tensors if t.begins is Begins.DISK)
            staging = replace(staging, block=min(staging.block, largest))
        arena = arena_bytes(workload, self.limit, MARGIN)
        schedule = make_schedule(workload, links, arena, staging)
        captures = self.ready.fuse and self.device.type == "cuda" and not self.ready.waits
        made = self.ready, self.windows, self.host, self.memory, read, copies
        return Replay(schedule, *made, captures)

    def workload(
        self, lasting: frozenset[int], read: Collection[int] = (), renewing: Collection[str] = ()
    ) -> Workload:
        """The regions as tasks, with the seconds and workspaces that they were measured to take.

        The tiles in `read` come from disk; the inputs in `renewing` are given up for their results.
        """
        tiled, windows = self.ready.tiled, self.windows
        made = {tile for region in self.ready.regions for tile in region.writes}
        pairs = (pair for name in renewing for pair in self.renewed[name].items())
        renewed_by = {old: windows.of[new] for old, new in pairs}

        def begins(tile: int) -> Begins:
            if tile in made:
                return Begins.MADE
            return Begins.DISK if tile in read else Begins.HOST

        tensors = tuple(
            Paged(
                number,
                str(tiled.tiles[tile]),
                windows.nbytes(tile),
                begins(tile),
                tile in tiled.kept,
                tile in lasting,
                renewed_by.get(tile),
            )
            for number, tile in enumerate(windows.tiles)
        )
        tasks = tuple(
            Task(
                " ".join(tiled.tiles[tile].tensor for tile in region.writes),
                tuple(windows.of[tile] for tile in region.reads),
                tuple(windows.of[tile] for tile in region.writes),
                cost.workspace,
                cost.seconds,
            )
            for region, cost in zip(self.ready.regions, self.costs, strict=True)
        )
        return Workload(tensors, tasks)


def take_memory_in_pages() -> None:
    """Let torch map pages of the GPU as it needs them: it then holds little more than it uses."""
    # There is no public way to say so once torch has started.
    inner: Any = vars(torch)["_C"]
    settings = getattr(inner, "_accelerator_setAllocatorSettings", None)
    if settings is not None:
        settings("expandable_segments:True")

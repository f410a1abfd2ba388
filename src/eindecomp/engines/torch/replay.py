"""Carrying out a schedule: what comes to the arena, is computed there and leaves it, run by run.

Work goes to lanes: the streams of one GPU and the threads that feed them, or on the CPU threads
alone. Where launching takes long, what is computed between two waits is captured as a CUDA graph,
and launched as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.engines.torch.paged_memory import ArenaMemory, HostMemory
from eindecomp.engines.torch.ready_region import BoundRegion, Heard, ReadyRegions
from eindecomp.engines.torch.windows import Windows
from eindecomp.tra.paging.schedule import (
    COMPUTE,
    DISK,
    TO_GPU,
    TO_HOST,
    Action,
    Execute,
    Fetch,
    Keep,
    Prefetch,
    Schedule,
    Store,
)

if TYPE_CHECKING:
    from eindecomp.engines.torch.disk_tier import FileTile

    Tensor = torch.Tensor
    Values = dict[int, tuple[Tensor, ...]]


WORTH = 0.5  # of a run that goes into launching, from which on capturing pays
_COMPILED = 2  # runs after which all is compiled, and seconds are telling


class Lane:
    """Work that is done in order, beside that of other lanes where the device is a GPU."""

    def __init__(self, device: torch.device, *, current: bool = False) -> None:
        self.stream: Any = None
        if device.type == "cuda":
            own = torch.cuda.current_stream if current else torch.cuda.Stream
            self.stream = own(device)

    def work(self) -> AbstractContextManager[Any]:
        """What is begun inside is done in this lane."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def mark(self) -> Any:
        """A mark behind all that was begun so far."""
        return None if self.stream is None else self.stream.record_event()

    def wait(self, mark: Any) -> None:
        """Do what comes next only when a mark has been reached; the host itself waits here."""
        if mark is None:
            return
        if self.stream is None:
            mark.synchronize()
        else:
            self.stream.wait_event(mark)

    def finish(self) -> None:
        """Wait until all is done."""
        if self.stream is not None:
            self.stream.synchronize()


_ASIDE = ((TO_GPU,), (DISK,))
"""The streams that have a thread of their own where tiles come from disk.

What they do can only be begun when something was read; whoever computes must not wait for that.
"""


@dataclass(eq=False)
class Replay:
    """A schedule with its lanes, to be carried out again and again."""

    schedule: Schedule
    ready: ReadyRegions
    windows: Windows
    host: HostMemory
    memory: ArenaMemory
    files: Mapping[int, FileTile]
    """The tiles that are read from disk in every run."""
    copies: Mapping[int, Tensor]
    """The tiles of files that the host keeps."""
    captures: bool
    """Whether work may be captured."""
    _resident: dict[int, Tensor] = field(default_factory=dict[int, "Tensor"])
    """The tensor that each resident tile was filled from, held so that nobody reuses its memory."""
    overwritten: set[int] = field(default_factory=set[int])
    """The resident tiles that the latest run has begun to renew."""
    _scalars: Sequence[Tensor] | None = None
    """Where captured work reads the run-time scalars."""
    _runs: int = 0
    _is_worth: bool = False

    def __post_init__(self) -> None:
        device = self.ready.libraries[0].device
        self.lanes = {
            COMPUTE: Lane(device, current=True),
            TO_GPU: Lane(device),
            TO_HOST: Lane(device),
            DISK: Lane(torch.device("cpu")),
        }
        self.stream_of = [action.stream for action in self.schedule.actions]
        self.awaited = {
            wait
            for action in self.schedule.actions
            for wait in action.waits
            if self.stream_of[wait] != action.stream
        }
        staging = self.schedule.staging
        count = staging.blocks if self.files else 0
        self.blocks = [self.host.empty(staging.block) for _ in range(count)]

    @cached_property
    def together(self) -> dict[int, list[int]]:
        """What is computed with nobody waiting in between: actions, by the first of them."""
        groups: dict[int, list[int]] = {}
        first: int | None = None
        for place, action in enumerate(self.schedule.actions):
            if action.stream == COMPUTE:
                if first is None or any(self.stream_of[wait] != COMPUTE for wait in action.waits):
                    first = place
                groups.setdefault(first, []).append(place)
                first = None if place in self.awaited else first
        return groups

    def run(
        self,
        values: Values,
        scalars: Sequence[Tensor],
        heard: Heard | None = None,
        there: Collection[int] = (),
    ) -> Values:
        """Carry out all actions: the tiles of results, on the host or where they renew others.

        `there` are the tiles whose windows have what is read from the run before.
        """
        self.overwritten.clear()
        if self._scalars is None:
            self._scalars = [scalar.clone() for scalar in scalars]
        for own, scalar in zip(self._scalars, scalars, strict=True):
            own.copy_(scalar)
        values.update({tile: (copy,) for tile, copy in self.copies.items()})
        arena, untouched = self.memory.taken(self, self.schedule.arena)
        if not untouched:
            self._resident.clear()
        captured = self._is_worth and heard is None
        run = _ScheduleRun(self, arena, values, self._scalars, heard, captured)
        begun = launched = perf_counter()
        try:
            self._load_resident(run, there)
            self._carry_out(run)
            launched = perf_counter()
        finally:  # also of a run that was stopped: the next one uses the same memory
            for lane in self.lanes.values():
                lane.finish()
        self._runs += 1
        if self.captures and self._runs == _COMPILED:
            self._is_worth = launched - begun > WORTH * (perf_counter() - begun)
        kept = self.ready.tiled.kept
        nothing = self.host.empty(0)  # of which no schedule tells
        made = run.stored | run.renewed
        return {
            tile: self.windows.arrays(tile, made.get(number, nothing))
            for tile, number in self.windows.of.items()
            if tile in kept
        }

    def _carry_out(self, run: _ScheduleRun) -> None:
        start = self.lanes[COMPUTE].mark()
        for lane in self.lanes.values():
            lane.wait(start)
        aside = _ASIDE if self.blocks else ()
        own = {*self.lanes} - {stream for streams in aside for stream in streams}
        with ThreadPoolExecutor(len(aside) or 1, "paging") as threads:
            for streams in aside:
                threads.submit(run.begin_all, streams)
            run.begin_all(own)
        if run.error is not None:
            raise run.error

    def _load_resident(self, run: _ScheduleRun, there: Collection[int]) -> None:
        """Bring what stays to the GPU, unless it is there from the run before."""
        renewed = self.schedule.renewed
        for window in self.schedule.resident:
            tile = self.windows.tiles[window.tensor]
            if window.tensor in renewed:
                if tile not in there:
                    run.bring(tile, window.offset)
                continue
            source, known = run.values[tile][0], self._resident.pop(tile, None)
            if known is None or known.data_ptr() != source.data_ptr():
                run.bring(tile, window.offset)
            self._resident[tile] = source


@dataclass(eq=False)
class _ScheduleRun:
    """One run of a schedule."""

    of: Replay
    arena: Tensor
    values: Values
    scalars: Sequence[Tensor]
    heard: Heard | None
    captured: bool
    """Whether what is computed together is launched as one graph."""
    stored: dict[int, Tensor] = field(default_factory=dict[int, "Tensor"])
    """What was made and has left the GPU, by window."""
    renewed: dict[int, Tensor] = field(default_factory=dict[int, "Tensor"])
    """What was made and stays on the GPU, by window: the memory of what it renews."""
    error: BaseException | None = None
    """The first error of a thread; all others stop at what they wait for next."""

    def __post_init__(self) -> None:
        self.marks: dict[int, Future[Any]] = {place: Future() for place in self.of.awaited}
        """The marks behind actions, for threads that wait for each other's."""

    def begin_all(self, streams: Collection[str]) -> None:
        """Begin the actions of some streams in order; an error is noted."""
        try:
            with torch.no_grad():  # of each thread's own
                for place, action in enumerate(self.of.schedule.actions):
                    if action.stream in streams:
                        self._begin(place, action)
        except BaseException as error:  # whoever waits must not wait forever
            self.error = self.error or error
            for mark in self.marks.values():
                with suppress(InvalidStateError):
                    mark.set_exception(error)

    def _begin(self, place: int, action: Action) -> None:
        lane, together = self.of.lanes[action.stream], self.of.together
        captured = self.captured and action.stream == COMPUTE
        if captured and place not in together and place not in self.of.awaited:
            return  # as most are: a graph has many actions
        for wait in action.waits:
            if self.of.stream_of[wait] != action.stream:
                lane.wait(self.marks[wait].result())
        with lane.work():
            if not captured:
                self._do(action)
            elif place in together:
                self._launch(place)
        if place in self.of.awaited:
            self.marks[place].set_result(lane.mark())

    def _do(self, action: Action) -> None:
        match action:
            case Execute():
                self._compute(action)
            case Fetch():
                self._fetch(action)
            case Store():
                memory = self.stored[action.tensor] = self.of.host.empty(action.nbytes)
                own = self._bytes(action.offset, action.nbytes)
                memory.copy_(own, non_blocking=True)
            case Keep(offset=offset, nbytes=nbytes):
                self._kept(action).copy_(self._bytes(offset, nbytes), non_blocking=True)
            case Prefetch():
                block = self.of.blocks[action.block][: action.nbytes]
                self.of.files[self.of.windows.tiles[action.tensor]].read(action.start, block)

    def _launch(self, first: int) -> None:
        """Begin all that is computed together, as a graph, which is captured if it is not there."""
        actions = [self.of.schedule.actions[place] for place in self.of.together[first]]
        graph = self.of.memory.graphs.get(first)
        if graph is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                for action in actions:
                    self._do(action)
            self.of.memory.graphs[first] = graph
        for action in actions:
            if isinstance(action, Keep):
                self._kept(action)
        graph.replay()

    def _kept(self, action: Keep) -> Tensor:
        """Where a tensor stays that renews another one."""
        self.of.overwritten.add(self.of.windows.tiles[action.renews])
        self.renewed[action.tensor] = self._bytes(action.into, action.nbytes)
        return self.renewed[action.tensor]

    def bring(self, tile: int, offset: int) -> None:
        """Fill a window before anything else is done: from the host, or by way of the blocks."""
        nbytes = self.of.windows.nbytes(tile)
        if tile not in self.of.files:
            self._copy(tile, self._bytes(offset, nbytes))
            return
        size = self.of.schedule.staging.block
        for number, start in enumerate(range(0, nbytes, size)):
            place = number % len(self.of.blocks)
            if not place:  # all of them are free again
                self.of.lanes[COMPUTE].finish()
            block = self.of.blocks[place][: min(size, nbytes - start)]
            self.of.files[tile].read(start, block)
            self._bytes(offset + start, len(block)).copy_(block, non_blocking=True)

    def _compute(self, action: Execute) -> None:
        regions = self.of.memory.regions
        if action.task not in regions:
            regions[action.task] = self._bound(action)
        if self.heard is not None:
            self.heard.begin(action.task)
        regions[action.task](self.scalars)
        if self.heard is not None:
            self.heard.end(action.task)

    def _bound(self, action: Execute) -> BoundRegion:
        """A task's region with its tensors in the arena, which are there in every run."""
        task = self.of.schedule.workload.tasks[action.task]
        at = dict(zip((*task.reads, *task.writes), (*action.reads, *action.writes), strict=True))

        windows, region = self.of.windows, self.of.ready.regions[action.task]
        reads, writes = (
            [
                array
                for tile in tiles
                for array in windows.arrays(
                    tile, self._bytes(at[windows.of[tile]], windows.nbytes(tile))
                )
            ]
            for tiles in (region.reads, region.writes)
        )
        return self.of.ready.bound(action.task, reads, writes)

    def _fetch(self, action: Fetch) -> None:
        target = self._bytes(action.offset + action.start, action.nbytes)
        if action.block is not None:
            target.copy_(self.of.blocks[action.block][: action.nbytes], non_blocking=True)
        elif action.tensor in self.stored:
            own = self.stored[action.tensor][action.start : action.start + action.nbytes]
            target.copy_(own, non_blocking=True)
        else:
            self._copy(self.of.windows.tiles[action.tensor], target)

    def _copy(self, tile: int, memory: Tensor) -> None:
        """A tile from the host."""
        targets = self.of.windows.arrays(tile, memory)
        for target, array in zip(targets, self.values[tile], strict=True):
            target.copy_(array, non_blocking=True)

    def _bytes(self, offset: int, nbytes: int) -> Tensor:
        """A part of the arena."""
        return self.arena[offset : offset + nbytes]

"""`TorchEngine`: runs plans by torch, on the GPUs that are there or on the CPU.

A plan whose tiles do not fit on the GPU is cut finer before anything runs.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from operator import itemgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch

from eindecomp.engines.engine import Prepared
from eindecomp.engines.executable import BoundProgram
from eindecomp.engines.resources import bytes_of, check_space, output_space
from eindecomp.engines.result import Listener, Result, RunRecord
from eindecomp.engines.tensor import Tensor, placing_bytes
from eindecomp.engines.torch.attention_calls import attend_by_calls
from eindecomp.engines.torch.blocks import NAME, Memories
from eindecomp.engines.torch.devices import (
    as_given,
    as_tensor,
    check_memory,
    devices_of,
    measured_peak,
    start_measuring,
)
from eindecomp.engines.torch.disk_tier import HostCopies
from eindecomp.engines.torch.loads import IndexChecks, Loads
from eindecomp.engines.torch.paged import MARGIN, Paging
from eindecomp.engines.torch.paged_memory import ArenaMemory, HostMemory, leave_arena
from eindecomp.engines.torch.ready_region import Heard, ReadyRegions
from eindecomp.engines.torch.region_code import Neighbours
from eindecomp.engines.torch.resident import Resident
from eindecomp.errors import InputError, PlanError
from eindecomp.graph.vertex import Vertex
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.kernels.torch.tensors import torch_type
from eindecomp.layout.boxes import within
from eindecomp.layout.tiling import Tiling, uncut
from eindecomp.planner.costs.byte_sizes import parse_bytes
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.plan import Plan
from eindecomp.tra.paging.make import ArenaTooSmallError
from eindecomp.tra.paging.schedule import Schedule
from eindecomp.tra.program.make import program_of
from eindecomp.tra.tiles.memory import finish_early, held_by, most_held, surely_made, while_there
from eindecomp.tra.tiles.ops import Region, TileProgram, tiles_of
from eindecomp.tra.tiles.regions import regions_of

if TYPE_CHECKING:
    from eindecomp.engines.engine import ReadOthers

    Given = Mapping[str, Any]
    Values = dict[int, tuple[torch.Tensor, ...]]


class TorchEngine:
    """Runs plans on torch's devices; several devices of a plan may share one of them.

    `device` is one of torch's, such as "cuda:1" or "cpu", or several; by default all GPUs, or the
    CPU where there is none. `gpu_memory`, such as "8GB", limits what is taken of a GPU: tensors
    then live in the host's memory and come and go. `host_memory` limits how much of what was given
    in files the host keeps; the rest stays on disk. Where tiles do not fit on the GPU, a plan is
    cut finer, unless `finer` is False. `fuse` compiles regions by torch.compile: by default on
    GPUs.
    """

    name = NAME

    def __init__(
        self,
        device: str | Sequence[str] | None = None,
        gpu_memory: int | str | None = None,
        host_memory: int | str | None = None,
        fuse: bool | None = None,
        finer: bool = True,
    ) -> None:
        self.torch_devices = devices_of(device)
        for name, given in (("fuse", False if fuse is None else fuse), ("finer", finer)):
            if not isinstance(given, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InputError(f"{name} is True or False, not {given!r}")
        self.finer = finer
        self.limit = None if gpu_memory is None else parse_bytes(gpu_memory)
        if self.limit is not None and len(self.torch_devices) > 1:
            if device is not None:
                raise InputError("gpu_memory limits one GPU: name it by `device`")
            self.torch_devices = self.torch_devices[:1]
        if self.limit is not None:
            check_memory(next(iter(self.torch_devices)), self.limit)
        if host_memory is not None and self.limit is None:
            raise InputError("host_memory goes with gpu_memory: without it nothing is paged")
        on_gpu = any(each.type == "cuda" for each in self.torch_devices)
        self.fuse = on_gpu if fuse is None else fuse
        self.host = HostMemory(pinned=on_gpu)
        kept = None if host_memory is None else parse_bytes(host_memory)
        self.copies = HostCopies(self.host, kept)
        self.arena = ArenaMemory(next(iter(self.torch_devices)), self.host)

    @property
    def device_count(self) -> int:
        """How many GPUs there are, or 1 on the CPU, of which torch uses all cores."""
        return len(self.torch_devices)

    def prepare(self, plan: Plan) -> TorchProgram:
        """Make a plan ready to run."""
        if self.limit is None:
            return TorchProgram(plan, self)
        program = program_of(plan, turns="none")
        check_space(program.graph, output_space(program))  # before it is cut into many tiles
        room = max(0, self.limit - MARGIN)
        made = made_to_fit(plan, partial(TorchProgram, engine=self), room, finer=self.finer)
        if made.program.devices > plan.devices:
            made.cut_into = made.program.devices
        return made

    def stored(self, given: Any, vertex: Vertex) -> Any:
        """What was given for an input: torch's tensors stay where they are."""
        return as_given(given, vertex)


class TorchProgram:
    """A program as regions of tiles, which run in order on each memory's device."""

    def __init__(
        self, plan: Plan, engine: TorchEngine, room: int | None = None, strict: bool = False
    ) -> None:
        """With `room`, memory is scarce: the tiles of a region take no more, where they can.

        If that is `strict`, a plan is refused where they cannot.
        """
        self.program = program_of(plan, turns="none")
        on_gpu = engine.torch_devices[0].type == "cuda"
        count = min(len(engine.torch_devices), self.program.devices)
        libraries = [TorchLibrary(device) for device in engine.torch_devices[:count]]
        memories = [
            device * count // self.program.devices for device in range(self.program.devices)
        ]
        self.tiled = attend_by_calls(tiles_of(self.program, memories))
        if plan.memory is not None:  # what is not computed by calls takes turns
            left = {self.tiled.tiles[op.into].tensor for op in self.tiled.ops if op.call is None}
            self.program = program_of(plan, turns=left)
            self.tiled = attend_by_calls(tiles_of(self.program, memories))
        self.tiled = finish_early(self.tiled)
        if room is None:
            regions = regions_of(self.tiled)
        else:
            regions = regions_of(self.tiled, room=room)
            regions = while_there(self.tiled, regions)
            if strict:
                _check_room(self.tiled, regions, room)
        self.ready = ready = ReadyRegions(self.tiled, regions, libraries, engine.fuse)
        joins = [join for code in ready.codes for join in code.joins]
        self.neighbours = Neighbours(self.tiled, joins)
        self.runner: Resident | Paging
        if engine.limit is None:
            self.memories = Memories(self.program, libraries, memories)
            self.loads = Loads(self.tiled, self.memories, self.place)
            captures = engine.fuse and count == 1 and on_gpu
            self.runner = Resident(ready, self.loads, plan.tie, captures)
        else:
            cpu = [TorchLibrary("cpu")]
            self.memories = Memories(self.program, cpu, memories, host=engine.host)
            self.loads = Loads(self.tiled, self.memories, self.place)
            self.runner = Paging(
                ready, self.loads, engine.limit, engine.host, engine.copies, engine.arena, plan.tie
            )
        self.space = output_space(self.program) if engine.limit is not None else None
        """What a run needs of the host's memory at least."""
        if not on_gpu and engine.limit is None:
            made = surely_made(self.tiled, regions, engine.fuse)
            self.space = most_held(self.tiled, regions, {*range(len(self.tiled.tiles))} - made)
        self.indices = IndexChecks(self.tiled, self.memories)
        self.cut_into: int | None = None
        """Into how many pieces vertices are cut, where that is more than the plan's."""
        made = self.program.outputs
        self._given_names = [name for name in self.program.output_names if name not in made]
        """The outputs that are inputs."""

    def place(self, name: str, given: Any) -> Tensor:
        """Put an input into the memories, in the layouts that the plan wants."""
        wanted = self.program.layouts_of(name)
        if isinstance(given, Tensor):
            leave_arena(given)
            here = given.mesh == self.program.mesh and set(wanted) <= set(given.tilings)
            if here and self.memories.have(given.held()):
                return replace(given, name=name)  # it outlives the one that was given
            given = given.array()
        is_near = isinstance(given, torch.Tensor) and given.is_cuda
        in_one = len(self.memories.libraries) == 1 and isinstance(self.runner, Resident)
        if in_one and not is_near:  # beside what it is multiplied together with
            of = torch_type(self.program.graph[name].dtype)
            room = self.neighbours.room(name, of, self.memories.libraries[0].device)
            given = given if room is None else room.copy_(as_tensor(given))
        return self.memories.tensor(name, self.memories.place(wanted, given))

    def bind(self, inputs: Mapping[str, Tensor]) -> Prepared:
        """The same program with some inputs fixed, whose blocks are looked up once."""
        if isinstance(self.runner, Paging):
            every = {vertex.name: inputs.get(vertex.name) for vertex in self.program.graph.inputs}
            return BoundProgram(self, every)
        bound = copy(self)
        bound.loads = Loads(self.tiled, self.memories, self.place, {**self.loads.bound, **inputs})
        bound.runner = self.runner.bound(bound.loads)
        return bound

    def run(
        self, inputs: Given, scalars: Given, donated: Collection[str], on_event: Listener | None
    ) -> Result:
        """Carry out all regions; when somebody listens, one by one.

        A region is one function: all that it computes is told to begin and to end with it.
        """
        with self.runner.turn(inputs), torch.no_grad():
            record = RunRecord(self.program, on_event)
            heard = None if on_event is None else Heard(record, self.ready)
            if self.space is not None:
                own = partial(bytes_of, self.program, donated)
                check_space(self.program.graph, self.space, 0, own)
            every: Mapping[str, Any] = ChainMap(cast("Any", inputs), cast("Any", self.loads.bound))
            self.indices.check(every, scalars)
            placed = 0  # the bytes that move to bring tensors into the layouts that are wanted
            if self.program.devices > 1:
                placed = sum(placing_bytes(self.program, *given) for given in inputs.items())
            given = {name: self._given_output(name, every[name]) for name in self._given_names}
            start_measuring(self.ready.libraries)
            values = self.runner.run(inputs, scalars, donated, heard)
            if heard is not None:
                heard.finish()
            return self._result(record, values, given, placed, told=heard is not None)

    def go_on(self, state: Given, read: ReadOthers) -> Result | None:
        """Run again at once if the last run left the state that is given up in place; else None."""
        runner = self.runner
        if not isinstance(runner, Resident) or self._given_names:
            return None
        with runner.turn(state), torch.no_grad():
            if not runner.goes_on(state):
                return None
            record = RunRecord(self.program, None)
            inputs, scalars = read()
            every = ChainMap(inputs, cast("Any", state), cast("Any", self.loads.bound))
            self.indices.check(every, scalars)
            start_measuring(self.ready.libraries)
            values = runner.go_on(inputs, scalars, state)
            return None if values is None else self._result(record, values, {}, 0)

    def _result(
        self,
        record: RunRecord,
        values: Values,
        given: Mapping[str, Tensor],
        placed: int,
        told: bool = False,
    ) -> Result:
        """The outputs, of which some were given; `told` if somebody heard of what has moved."""
        if not told:
            for step, count in self.program.moving:
                record.moved(step, count)
        made: dict[str, Tensor] = {}
        for name, buffer in self.program.outputs.items():
            blocks: list[torch.Tensor] = []
            for block in self.tiled.outputs[name]:
                box, array = self.tiled.tiles[block.tile].box, values[block.tile][0]
                blocks.append(array if block.box == box else array[within(block.box, box)])
            tiling = self.program.buffers[buffer].tiling
            made[name] = self.memories.tensor(name, self.runner.housed(name, {tiling: blocks}))
        measured = measured_peak(self.ready.libraries)
        peak = self.runner.held if measured is None else measured
        took = self.runner.ended(made, record.start)
        predicted = None if self.schedule is None else self.schedule.seconds
        return record.result(
            {**given, **made}, placed=placed, peak=peak, predicted=predicted,
            cut_into=self.cut_into, took=took,
        )  # fmt: skip

    @property
    def schedule(self) -> Schedule | None:
        """What came, went and was computed when in the last run under a limit on memory."""
        return self.runner.schedule

    def _given_output(self, name: str, given: Any) -> Tensor:
        """An output that is an input; it outlives what was given for that."""
        if isinstance(given, Tensor):
            leave_arena(given)
            return replace(given, name=name)
        whole = Tiling(uncut(self.program.graph[name].shape))
        own = as_tensor(given).clone()
        return self.memories.tensor(name, self.memories.place([whole], own))

    def close(self) -> None:
        """Let go of what is kept for the next run."""
        self.runner.close()


def _check_room(tiled: TileProgram, regions: Sequence[Region], room: int) -> None:
    """Raise an error if the tiles of a region take more than so many bytes."""
    held = [held_by(tiled, each.ops, {*each.reads, *each.writes}) for each in regions]
    needed, largest = max(zip(held, regions, strict=True), key=itemgetter(0), default=(0, None))
    if largest is not None and needed > room:
        name = " ".join(tiled.tiles[tile].tensor for tile in largest.writes)
        raise ArenaTooSmallError(name, needed, room)


MOST = 512
"""Pieces, beyond which nothing is cut finer."""
_AT_ONCE = 2 / 3
"""The share of the room that one region may take while the next one's tensors are fetched."""
_EACH = 10.0  # seconds for each plan
_TIME = 60.0  # seconds for all of them
_IN_VAIN = 3  # plans that need no less than the one before them, after which no more are tried
T = TypeVar("T")


def made_to_fit(plan: Plan, make: Callable[..., T], room: int, *, finer: bool) -> T:
    """What `make` makes of a plan or, where tiles are too large for it, of one that cuts finer.

    It makes a program whose regions take up to `room` bytes; if `strict`, none takes more.
    While a region uses part of the room, what comes next can be fetched: that is tried first, then
    all of it. The devices of a finer plan share one GPU, so that what moves between them costs
    little; it is made for the fewest bytes among those that cut into the fewest pieces.
    If none fits, the error is that of the plan that lacks the fewest bytes.
    """
    part = int(room * _AT_ONCE)
    tried: list[tuple[int, Plan]] = []
    for each in _finer(plan, part) if finer and room > 0 else (plan,):
        try:
            return make(each, room=part, strict=True)
        except ArenaTooSmallError as error:
            tried.append((error.needed, each))
        if len(tried) > _IN_VAIN and tried[-1][0] >= tried[-1 - _IN_VAIN][0]:
            break
    least = min(needed for needed, _ in tried)
    errors: list[ArenaTooSmallError] = []
    for each in [each for needed, each in tried if needed <= max(room, least)]:
        try:
            return make(each, room=room, strict=False)
        except ArenaTooSmallError as error:
            errors.append(error)
    raise min(errors, key=lambda error: error.missing)


def _finer(plan: Plan, room: int) -> Iterator[Plan]:
    """The plan, the same uncut, then plans of more and more pieces while there is time."""
    begin = perf_counter()
    yield plan
    counts = [2**k for k in range(MOST.bit_length()) if plan.devices < 2**k <= MOST]
    for devices in [*([1] if plan.devices > 1 else []), *counts]:
        left = _TIME - (perf_counter() - begin)
        if left <= 0:
            return
        with suppress(PlanError):  # as where there are too many ways to list them
            yield make_plan(
                plan.graph, devices, strategy={"tiles": room}, tie=plan.tie,
                rewrite=False, time_limit=min(_EACH, left), progress=False,
                keep_on_interrupt=False,
            )  # fmt: skip

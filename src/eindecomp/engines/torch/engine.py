"""`TorchEngine`: runs plans by torch, on the GPUs that are there or on the CPU."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.engines.record import RunRecord
from eindecomp.engines.tensor import Tensor
from eindecomp.engines.torch.blocks import NAME, Memories
from eindecomp.engines.torch.devices import devices_of
from eindecomp.engines.torch.given import as_given, as_tensor, check_indices
from eindecomp.engines.torch.host_memory import HostMemory
from eindecomp.engines.torch.joined import Neighbours
from eindecomp.engines.torch.paged import Paging
from eindecomp.engines.torch.ready_region import ReadyRegions
from eindecomp.engines.torch.resident import Resident
from eindecomp.errors import InputError
from eindecomp.kernels.torch.dtypes import torch_type
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.planner.costs.byte_sizes import parse_bytes
from eindecomp.tra.boxes import within
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.steps import AllGather, Move, ReduceScatter
from eindecomp.tra.program.tiling import Tiling, uncut
from eindecomp.tra.tiles.make import tiles_of
from eindecomp.tra.tiles.ops import Kind
from eindecomp.tra.tiles.regions import regions_of

if TYPE_CHECKING:
    from eindecomp.engines.engine import Listener
    from eindecomp.engines.result import Result
    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.plan import Plan
    from eindecomp.tra.tiles.ops import Block

    Values = dict[int, tuple[torch.Tensor, ...]]


class TorchEngine:
    """Runs plans on torch's devices; several devices of a plan may share one of them.

    `device` is one of torch's, such as "cuda:1" or "cpu", or several; by default all GPUs, or the
    CPU where there is none. `gpu_memory`, such as "8GB", limits what is taken of a GPU: tensors
    then live in the host's memory and come and go. `fuse` compiles regions by torch.compile: by
    default on GPUs.
    """

    name = NAME

    def __init__(
        self,
        device: str | Sequence[str] | None = None,
        gpu_memory: int | str | None = None,
        fuse: bool | None = None,
    ) -> None:
        self.torch_devices = devices_of(device)
        self.limit = None if gpu_memory is None else parse_bytes(gpu_memory)
        if self.limit is not None and len(self.torch_devices) > 1:
            if device is not None:
                raise InputError("gpu_memory limits one GPU: name it by `device`")
            self.torch_devices = self.torch_devices[:1]
        on_gpu = any(each.type == "cuda" for each in self.torch_devices)
        self.fuse = on_gpu if fuse is None else fuse
        self.host = HostMemory(pinned=on_gpu)

    def prepare(self, plan: Plan) -> TorchProgram:
        """Make a plan ready to run."""
        return TorchProgram(plan, self)

    def stored(self, given: Any, vertex: Vertex) -> Any:
        """What was given for an input: torch's tensors stay where they are."""
        return as_given(given, vertex)


class TorchProgram:
    """A program as regions of tiles, which run in order on each memory's device."""

    def __init__(self, plan: Plan, engine: TorchEngine) -> None:
        self.program = program_of(plan)
        self.tied = frozenset(plan.tie)
        on_gpu = engine.torch_devices[0].type == "cuda"
        count = min(len(engine.torch_devices), self.program.devices)
        libraries = [TorchLibrary(device) for device in engine.torch_devices[:count]]
        memories = [
            device * count // self.program.devices for device in range(self.program.devices)
        ]
        self.tiled = tiles_of(self.program, memories)
        ready = ReadyRegions(self.tiled, regions_of(self.tiled), libraries, engine.fuse)
        joins = [join for code in ready.codes for join in code.joins]
        self.neighbours = Neighbours(self.tiled, joins)
        self.runner: Resident | Paging
        if engine.limit is None:
            self.memories = Memories(self.program, libraries, memories)
            self.runner = Resident(ready, capture=engine.fuse and count == 1 and on_gpu)
        else:
            cpu = [TorchLibrary("cpu")]
            self.memories = Memories(self.program, cpu, memories, host=engine.host)
            self.runner = Paging(ready, engine.limit, engine.host)
        self.loads = [op.into for op in self.tiled.ops if op.kind is Kind.LOAD]

    def place(self, name: str, given: Any) -> Tensor:
        """Put an input into the memories, in the layouts that the plan wants."""
        wanted = self.program.layouts_of(name)
        if isinstance(given, Tensor):
            if given.mesh == self.program.mesh and set(wanted) <= set(given.tilings):
                return replace(given, name=name)  # it outlives the one that was given
            given = given.array()
        room = None if isinstance(given, torch.Tensor) and given.is_cuda else self._room(name)
        if room is not None:
            given = room.copy_(as_tensor(given))
        return self.memories.tensor(name, self.memories.place(wanted, given))

    def _room(self, name: str) -> torch.Tensor | None:
        """Memory beside what an input is multiplied together with, where all is in one memory."""
        library, *others = self.memories.libraries
        if others or isinstance(self.runner, Paging):
            return None
        of = torch_type(self.program.graph[name].dtype)
        return self.neighbours.room(name, of, library.device)

    def run(
        self,
        inputs: Mapping[str, Any],
        scalars: Mapping[str, Any],
        donated: Collection[str],
        on_event: Listener | None,
    ) -> Result:
        """Carry out all regions."""
        del donated  # their arrays are let go of with the tensors
        record = RunRecord(self.program, on_event)
        check_indices(self.program.graph, inputs)
        with torch.no_grad():
            values = {tile: (self._load(tile, inputs),) for tile in self.loads}
            if isinstance(self.runner, Paging):
                values = self.runner.run(values, scalars, self._lasting(inputs))
            else:
                values = self.runner.run(values, scalars)
        for step in self.program.steps:
            if isinstance(step, Move | ReduceScatter | AllGather):
                record.moved(step, self.program.moved_by(step))
        tensors = {v.name: self._output(v.name, inputs, values) for v in self.program.graph.outputs}
        return record.result(tensors)

    def _lasting(self, inputs: Mapping[str, Any]) -> frozenset[int]:
        """The tiles of inputs that stay as they are from run to run."""
        tiles = self.tiled.tiles
        names = {n for n, x in inputs.items() if isinstance(x, Tensor) and n not in self.tied}
        return frozenset(tile for tile in self.loads if tiles[tile].tensor in names)

    def _load(self, tile: int, inputs: Mapping[str, Any]) -> torch.Tensor:
        """A block of an input, where its readers are."""
        made = self.tiled.tiles[tile]
        given = inputs[made.tensor]
        if not isinstance(given, Tensor):
            given = self.place(made.tensor, given)
        return self.memories.block(given.held(), given.mesh, made.box, made.memory)

    def _output(self, name: str, inputs: Mapping[str, Any], values: Values) -> Tensor:
        number = self.program.outputs.get(name)
        if number is None:
            given = inputs[name]
            if isinstance(given, Tensor):  # what is made of it outlives it
                return replace(given, name=name)
            whole = Tiling(uncut(self.program.graph[name].shape))
            return self.memories.tensor(name, self.memories.place([whole], given))
        blocks = [self._view(block, values) for block in self.tiled.outputs[name]]
        return self.memories.tensor(name, {self.program.buffers[number].tiling: blocks})

    def _view(self, block: Block, values: Values) -> torch.Tensor:
        """A block of a tile that was kept."""
        box, array = self.tiled.tiles[block.tile].box, values[block.tile][0]
        return array if block.box == box else array[within(block.box, box)]

    def close(self) -> None:
        """Let go of what is kept for the next run."""
        if isinstance(self.runner, Paging):
            self.runner.close()

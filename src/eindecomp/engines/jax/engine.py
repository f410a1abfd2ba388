"""`JaxEngine`: runs a plan as one function that XLA compiles for all devices.

XLA fuses and overlaps what the plan says; what moves where is written into the function as explicit
collectives, so that XLA decides nothing about it. What differs from other engines: sums over
devices are added in an order that XLA's collectives choose.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Any

import jax
import numpy as np

from eindecomp.engines.jax.compiled import CompiledProgram, ForDevices
from eindecomp.engines.jax.layouts import ArrayLayout, devices_of, mesh_of_devices
from eindecomp.engines.resources import bytes_of, check_space, largest_tile
from eindecomp.engines.result import (
    PROGRAM,
    ByName,
    BytesMoved,
    KernelCompiled,
    Listener,
    Result,
    RunStarted,
    Stats,
    TaskFinished,
    TaskStarted,
    naming,
)
from eindecomp.engines.tensor import Tensor, placing_bytes
from eindecomp.errors import InputError, RunError
from eindecomp.graph.arrays import to_stored
from eindecomp.graph.vertex import Vertex
from eindecomp.layout.tiling import Tiling
from eindecomp.planner.plan import Plan
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import Peak, fullest

NAME = "jax"
PRECISIONS = ("highest", "default")


class JaxEngine:
    """Runs plans on JAX's devices, each of a plan's on one of its own.

    `platform` is one of JAX's, such as "cpu", "gpu" or "tpu"; by default the best there is.
    `devices` are some of its devices instead, in the order of the plan's. `precision` is that of
    matrix products of float32: "highest", or "default" for whatever the platform does fastest.
    Where nobody has said how many devices a CPU has, it has as many as the first plan needs.
    """

    name = NAME

    def __init__(
        self,
        platform: str | None = None,
        devices: Sequence[Any] | None = None,
        precision: str = "highest",
    ) -> None:
        if precision not in PRECISIONS:
            raise InputError(f"precision is one of {', '.join(PRECISIONS)}, not {precision!r}")
        self.platform, self.devices, self.precision = platform, devices, precision
        self._made: dict[Any, JaxProgram] = {}
        self._lock = Lock()

    @property
    def device_count(self) -> int:
        """How many devices there are, those of other hosts among them; this starts JAX."""
        return len(devices_of(self.platform, self.devices))

    def prepare(self, plan: Plan) -> JaxProgram:
        """Make a plan ready to run; equal plans are compiled once."""
        program = program_of(plan).check_moves_blocks(NAME)
        key = (str(plan.graph), program.mesh, program.buffers, program.steps)
        with self._lock:
            if key not in self._made:
                mesh = mesh_of_devices(program.mesh, self.platform, self.devices)
                self._made[key] = JaxProgram(ForDevices(program, mesh, self.precision))
            return self._made[key]

    def stored(self, given: Any, vertex: Vertex) -> Any:
        """What was given for an input, checked; JAX's arrays of the right type stay as they are."""
        if not isinstance(given, jax.Array):
            return to_stored(given, vertex)
        if given.is_deleted():
            raise InputError(f"input {vertex} was given an array that JAX has deleted")
        if given.shape != vertex.shape:
            raise InputError(f"input {vertex} has shape {vertex.shape}, got {given.shape}")
        return given if given.dtype == vertex.dtype else to_stored(given, vertex)


@dataclass(slots=True)
class JaxArrays:
    """What a tensor's data are: an array for each of its layouts."""

    by_tiling: dict[Tiling, jax.Array]
    is_shared: bool = False
    """Whether somebody else has the same arrays, so that they cannot be given up."""


class JaxProgram:
    """A program, what XLA has made of it, and the tensors that it takes and makes."""

    def __init__(self, made_for: ForDevices) -> None:
        self.made_for, self.program = made_for, made_for.program
        on_host = made_for.devices.devices.flat[0].platform == "cpu"
        self._compiled: dict[tuple[int, ...], CompiledProgram] = {(): made_for.compile()}
        self.space: Peak | None = None
        """What a run needs of the host's memory, where the devices have none of their own."""
        if on_host:
            self.space = Peak(self.compiled.space, largest_tile(self.program).vertex)
        given = [buffer for own in self.program.inputs.values() for buffer in own]
        self._reads = [buffer.tensor for buffer in given]
        """The input of every array that is given to what was compiled."""
        self._lock = Lock()

    @property
    def compiled(self) -> CompiledProgram:
        """What runs when nothing is donated."""
        return self._compiled[()]

    def run(
        self, inputs: ByName, scalars: ByName, donated: Collection[str], on_event: Listener | None
    ) -> Result:
        """Call what was compiled; events tell of it as one task on every device."""
        started = perf_counter()
        devices = range(self.program.devices)
        if self.space is not None:
            check_space(self.program.graph, self.space, 0, partial(bytes_of, self.program, donated))
        if on_event is not None:
            on_event(RunStarted(len(devices)))
            for device in devices:
                on_event(TaskStarted(PROGRAM, "compute", device, device, 0.0))
        read = [self._arrays(name, given) for name, given in inputs.items()]
        arrays = [array for own, _ in read for array in own]
        compiled = self._for(self._given_up(inputs, donated, arrays), on_event, started)
        made = self._call(compiled, scalars, arrays)
        seconds = perf_counter() - started
        tensors = self._tensors(made, inputs)
        if on_event is not None:
            for vertex, count in compiled.bytes_by_vertex.items():
                if count:
                    on_event(BytesMoved(vertex, "move", count, seconds))
            for device in devices:
                on_event(TaskFinished(PROGRAM, "compute", device, device, 0.0, seconds))
        placed = sum(count for _, count in read)
        return Result(tensors, lambda: self._stats(compiled, seconds, placed))

    def _call(
        self, compiled: CompiledProgram, scalars: Mapping[str, Any], arrays: Sequence[jax.Array]
    ) -> list[jax.Array]:
        try:
            made = [*compiled([*scalars.values()], arrays)]
        except RuntimeError as error:  # of XLA, such as that memory is short
            raise RunError(f"XLA: {error}") from error
        if self.made_for.lookups:
            self._check_indices(made.pop())
        return made

    def _check_indices(self, ranges: jax.Array) -> None:
        """Refuse indices out of range, which XLA does not."""
        for shard in ranges.addressable_shards:
            [ranges] = np.asarray(shard.data)
            device = shard.index[0].indices(self.program.devices)[0]
            for step, (low, high, rows) in zip(self.made_for.lookups, ranges, strict=True):
                if low < 0 or high >= rows:
                    vertex = self.program.graph[step.vertex]
                    box = self.program.buffers[step.into].box(self.program.mesh, device)
                    with naming(vertex, box, device):
                        bad = low if low < 0 else high
                        raise InputError(f"index {bad} is outside 0 to {rows - 1}")

    def _given_up(
        self, inputs: Mapping[str, Any], donated: Collection[str], arrays: Sequence[jax.Array]
    ) -> tuple[int, ...]:
        """The buffers whose memory nobody else has."""
        if not donated:
            return ()
        times = {id(x): sum(x is y for y in arrays) for x in arrays}
        own: list[int] = []
        for (number, _), name, x in zip(self.made_for.inputs, self._reads, arrays, strict=True):
            held = inputs[name].data if isinstance(inputs[name], Tensor) else None
            is_own = isinstance(held, JaxArrays) and not held.is_shared
            is_result = any(vertex.name == name for vertex in self.program.graph.outputs)
            if name in donated and is_own and not is_result and times[id(x)] == 1:
                own.append(number)
        return tuple(own)

    def _for(
        self, donated: tuple[int, ...], on_event: Listener | None, started: float
    ) -> CompiledProgram:
        """The program that uses the memory of these buffers."""
        with self._lock:
            if donated not in self._compiled:
                begun = perf_counter() - started
                self._compiled[donated] = self.made_for.compile(donated)
                if on_event is not None:
                    ended = perf_counter() - started
                    on_event(KernelCompiled(PROGRAM, 0, 0, begun, ended))
            return self._compiled[donated]

    def _stats(self, compiled: CompiledProgram, seconds: float, placed: int) -> Stats:
        program, moved = self.program, compiled.bytes_by_vertex
        took = seconds, program.operations, sum(moved.values()), moved, fullest(program).bytes
        return Stats(*took, program.tasks * program.devices, program.devices, placed)

    # Tensors

    def place(self, name: str, given: Any) -> Tensor:
        """An input in all layouts that the program wants."""
        wanted = self.program.layouts_of(name)
        if isinstance(given, Tensor):
            given.held().is_shared = True  # JAX copies nothing that lies already as it is wanted
            here = self._here(given)
            if here is not None and all(tiling in here.by_tiling for tiling in wanted):
                return replace(given, name=name)
        shared = isinstance(given, jax.Array | Tensor)
        arrays = {tiling: self._array(name, given, tiling) for tiling in wanted}
        return self._tensor(name, JaxArrays(arrays, is_shared=shared))

    def _arrays(self, name: str, given: Any) -> tuple[list[jax.Array], int]:
        """An input as the program reads it, and how many bytes move to bring it there."""
        wanted = [buffer.tiling for buffer in self.program.inputs[name]]
        here = self._here(given) if isinstance(given, Tensor) else None
        if here is not None and all(tiling in here.by_tiling for tiling in wanted):
            return [here.by_tiling[tiling] for tiling in wanted], 0
        arrays = [self._array(name, given, tiling) for tiling in wanted]
        return arrays, placing_bytes(self.program, name, given)

    def _here(self, given: Tensor) -> JaxArrays | None:
        """The data of a tensor that lies on the devices of this mesh."""
        held = given.held()
        if given.mesh != self.program.mesh or not isinstance(held, JaxArrays):
            return None
        first = next(iter(held.by_tiling.values()))
        sharding: Any = first.sharding
        return held if sharding.mesh == self.made_for.devices else None

    def _array(self, name: str, given: Any, wanted: Tiling) -> jax.Array:
        """An input in one layout; what is not cut into equal blocks goes through the host."""
        layout = self.made_for.layout(name, wanted)
        if not isinstance(given, Tensor):
            return layout.put(given)
        here = self._here(given)
        if here is not None and wanted in here.by_tiling:
            return here.by_tiling[wanted]
        return layout.put(given.array())

    def _tensors(self, made: Sequence[jax.Array], inputs: Mapping[str, Any]) -> dict[str, Tensor]:
        """The outputs: what was made, in the program's order, and inputs that are outputs."""
        buffers, outputs = self.program.buffers, self.program.outputs
        arrays = dict(zip(outputs, made, strict=True))
        tensors: dict[str, Tensor] = {}
        for vertex in self.program.graph.outputs:
            name = vertex.name
            if name in arrays:
                tiling = buffers[outputs[name]].tiling
                tensors[name] = self._tensor(name, JaxArrays({tiling: arrays[name]}))
            else:
                tensors[name] = self.place(name, inputs[name])
        return tensors

    def _tensor(self, name: str, data: JaxArrays) -> Tensor:
        vertex = self.program.graph[name]
        tilings = tuple(data.by_tiling)
        first = self.made_for.layout(name, tilings[0])
        ways = partial(_gathered, first), partial(_as_one, first)
        mesh = self.program.mesh
        return Tensor(name, vertex.shape, vertex.dtype, NAME, mesh, tilings, data, *ways)

    def close(self) -> None:
        """What was compiled stays with the engine, for equal plans."""


def _gathered(layout: ArrayLayout, data: JaxArrays) -> np.ndarray[Any, Any]:
    """All of a tensor, from the first of its layouts, which has it all."""
    return layout.gather(data.by_tiling[layout.tiling])


def _as_one(layout: ArrayLayout, data: JaxArrays) -> jax.Array:
    """A tensor as one array of JAX's: its own, where it lies in equal blocks."""
    if layout.is_natural:
        return data.by_tiling[layout.tiling]
    with jax.enable_x64(True):
        return jax.device_put(_gathered(layout, data))

"""`ApartEngine`: the oracle of all engines. One process, but every device has arrays of its own.

Steps are carried out one after another, device by device. Whatever a device reads must be in its
own memory; what it lacks is copied piece by piece from the device that the program names, and
counted as it is copied. Nothing is shared, merged or reordered, so that a wrong program fails here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.apart.device import Device, HeldBlock
from eindecomp.engines.events import BytesMoved, RunStarted, TaskFinished, TaskStarted, TensorFreed
from eindecomp.engines.placing import layouts_placed
from eindecomp.engines.result import Result, Stats
from eindecomp.engines.tensor import Tensor
from eindecomp.errors import EinDecompError, RunError
from eindecomp.graph.ops import Fill
from eindecomp.graph.work import operations
from eindecomp.kernels.library import library_of
from eindecomp.tra.boxes import meet, shape_of, show_box, volume, within
from eindecomp.tra.program.exchange import received
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import is_view
from eindecomp.tra.program.steps import (
    AllGather,
    Compute,
    Free,
    Generate,
    Load,
    Move,
    ReduceScatter,
    kind_of,
)
from eindecomp.tra.program.tiling import Tiling, uncut

if TYPE_CHECKING:
    from eindecomp.engines.engine import Listener
    from eindecomp.planner.plan import Plan
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.row import DeviceStep

    Array = np.ndarray[Any, Any]
    Blocks = dict[Tiling, list[Array]]
    """For each layout of a tensor every device's block of it."""


class ApartEngine:
    """Runs plans on devices that share nothing, one step and one device after another."""

    name = "apart"

    def prepare(self, plan: Plan) -> ApartProgram:
        """Make a plan ready to run."""
        return ApartProgram(program_of(plan))


class ApartProgram:
    """The rows of a program, one for each device."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.rows = [program.on(device) for device in range(program.devices)]

    def place(self, name: str, given: Any) -> Tensor:
        """Give every device its blocks of an input."""
        wanted = layouts_placed(self.program, name)
        if not isinstance(given, Tensor):
            blocks = {tiling: self._blocks(tiling, given) for tiling in wanted}
            return self._tensor(name, blocks)
        held = given.held()
        devices = [Device(number, library_of("numpy")) for number in range(self.program.devices)]
        return self._tensor(name, {tiling: self.moved(given, held, tiling, devices)
                                   for tiling in wanted})  # fmt: skip

    def _blocks(self, tiling: Tiling, array: Any) -> list[Array]:
        boxes = (tiling.box(self.program.mesh, d) for d in range(self.program.devices))
        return [_block(array, box) for box in boxes]

    def moved(
        self, given: Tensor, held: Blocks, wanted: Tiling, devices: list[Device]
    ) -> list[Array]:
        """The blocks of a tensor in a wanted tiling, brought from one in which it lies."""
        if given.mesh != self.program.mesh:
            return self._blocks(wanted, given.numpy())
        if wanted in held:
            return held[wanted]
        return _rearranged(self.program, held, wanted, given.dtype, devices)

    def _tensor(self, name: str, blocks: Blocks) -> Tensor:
        vertex, mesh = self.program.graph[name], self.program.mesh
        gather = partial(_gather, mesh, vertex.shape, vertex.dtype)
        tilings = tuple(blocks)
        return Tensor(name, vertex.shape, vertex.dtype, "apart", mesh, tilings, blocks, gather)

    def run(
        self,
        inputs: Mapping[str, Any],
        scalars: Mapping[str, Any],
        donated: Collection[str],
        on_event: Listener | None,
    ) -> Result:
        """Carry out all steps."""
        del donated  # their arrays are let go of with the tensors
        start = perf_counter()
        program = self.program
        library = library_of("numpy")
        devices = [Device(number, library) for number in range(program.devices)]
        run = _Run(self, devices, inputs, scalars, on_event, start)
        run.tell(RunStarted(run.tasks))
        with np.errstate(all="ignore"):
            for number, step in enumerate(program.steps):
                run.carry_out(number, step)
        tensors = {
            vertex.name: self._output(vertex.name, devices, inputs)
            for vertex in program.graph.outputs
        }
        stats = Stats(
            perf_counter() - start,
            sum(operations(program.graph, program.graph[name]) for name in run.moved),
            sum(run.moved.values()),
            run.moved,
            max(device.peak for device in devices),
            run.tasks,
            1,
            run.placed,
        )
        return Result(tensors, stats)

    def _output(self, name: str, devices: list[Device], inputs: Mapping[str, Any]) -> Tensor:
        number = self.program.outputs.get(name)
        if number is None:
            given = inputs[name]
            if isinstance(given, Tensor):
                return self._tensor(name, given.held())  # it outlives the one that was given
            # Every device has all of it, as the caller does.
            whole = Tiling(uncut(self.program.graph[name].shape))
            return self._tensor(name, {whole: [np.array(given[...])] * self.program.devices})
        blocks = [device.buffers[number].arrays[0] for device in devices]
        return self._tensor(name, {self.program.buffers[number].tiling: blocks})

    def close(self) -> None:
        """Nothing is held between runs."""


@dataclass
class _Run:
    """One run: the devices, what was given, and what has moved so far."""

    owner: ApartProgram
    devices: list[Device]
    inputs: Mapping[str, Any]
    scalars: Mapping[str, Any]
    on_event: Listener | None
    start: float
    placed: int = 0

    def __post_init__(self) -> None:
        self.program = self.owner.program
        self.moved = {s.vertex: 0 for s in self.program.steps if isinstance(s, Compute)}
        work = (Compute, ReduceScatter, Generate)
        self.tasks = len(self.devices) * sum(isinstance(s, work) for s in self.program.steps)

    def tell(self, event: Any) -> None:
        """Report an event, if somebody listens."""
        if self.on_event is not None:
            self.on_event(event)

    def carry_out(self, number: int, step: Any) -> None:
        """One step on every device."""
        before = [device.received for device in self.devices]
        for device, row in zip(self.devices, self.owner.rows, strict=True):
            self._on(device, row.steps[number])
        moved = sum(device.received for device in self.devices) - sum(before)
        if isinstance(step, Move | ReduceScatter | AllGather):
            self.moved[step.vertex] += moved
            if moved:
                now = perf_counter() - self.start
                self.tell(BytesMoved(step.vertex, kind_of(step), moved, now))
        elif isinstance(step, Load):
            self.placed += moved

    def _on(self, device: Device, own: DeviceStep) -> None:
        """A device's part of a step."""
        step, buffers = own.step, self.program.buffers
        match step:
            case Load():
                self._load(device, step, own)
            case Generate():
                self._timed(device, buffers[step.into].tensor, "fill", own, self._generate)
            case Compute():
                self._timed(device, step.vertex, "compute", own, self._compute)
            case Move():
                self._move(device, step, own)
            case ReduceScatter():
                self._timed(device, step.vertex, "reduce-scatter", own, self._reduce)
            case AllGather():
                home = device.buffers[step.buffer]
                for piece in own.exchange.receives:
                    source = self.devices[piece.peer].read(step.buffer, piece.box, step.vertex)
                    device.receive([home.arrays[0][within(piece.box, home.box)]], source)
            case Free():
                freed = device.free(step.buffer)
                self.tell(TensorFreed(buffers[step.buffer].tensor, freed))

    def _timed(self, device: Device, vertex: str, kind: str, own: DeviceStep, do: Any) -> None:
        begun = perf_counter() - self.start
        self.tell(TaskStarted(vertex, kind, device.number, 0, begun))
        try:
            do(device, own.step, own)
        except RunError:
            raise
        except Exception as error:
            why = (
                str(error)
                if isinstance(error, EinDecompError)
                else f"{type(error).__name__}: {error}"
            )
            where = f"{self.program.graph[vertex]}, tile {show_box(own.box)}"
            raise RunError(f"{where} on device {device.number}: {why}") from error
        now = perf_counter() - self.start
        self.tell(TaskFinished(vertex, kind, device.number, 0, begun, now))

    def _load(self, device: Device, step: Load, own: DeviceStep) -> None:
        buffer = self.program.buffers[step.into]
        given = self.inputs[buffer.tensor]
        if not isinstance(given, Tensor):
            block = _block(given, own.box)
            device.hold(step.into, HeldBlock(own.box, (block,), block.nbytes))
            return
        blocks: Blocks = given.held()
        if given.mesh == self.program.mesh and buffer.tiling not in blocks:
            block = device.allocate(step.into, own.box, buffer.types)
            _rearrange(self.program, blocks, buffer.tiling, device, block.arrays[0])
            return
        tile = self.owner.moved(given, blocks, buffer.tiling, self.devices)[device.number]
        device.hold(step.into, HeldBlock(own.box, (tile,), tile.nbytes))

    def _generate(self, device: Device, step: Generate, own: DeviceStep) -> None:
        buffer = self.program.buffers[step.into]
        op = self.program.graph[buffer.tensor].op
        assert isinstance(op, Fill)  # noqa: S101
        [out] = device.allocate(step.into, own.box, buffer.types).arrays
        device.library.fill(op, out, own.box, self.scalars, self.program.graph.scalars)

    def _compute(self, device: Device, step: Compute, own: DeviceStep) -> None:
        graph, buffers = self.program.graph, self.program.buffers
        vertex = graph[step.vertex]
        operands = [
            None if read is None or box is None else device.read(read.buffer, box, name)[0]
            for name, read, box in zip(vertex.inputs, step.reads, own.reads, strict=True)
        ]
        out = device.allocate(step.into, own.box, buffers[step.into].types).arrays
        kernel = device.library.kernel(graph, vertex)
        scalars = tuple(self.scalars.values())
        if step.is_partial:
            kernel.partial(operands, out, scalars)
        else:
            kernel.whole(operands, out[0], scalars)

    def _move(self, device: Device, step: Move, own: DeviceStep) -> None:
        buffers = self.program.buffers
        into, source = buffers[step.into], buffers[step.source]
        held = device.buffers[step.source]
        if is_view(self.program, into, device.number):
            views = device.read(step.source, own.box, source.tensor) if volume(own.box) else (
                device.library.empty(shape_of(own.box), into.types[0]),)  # fmt: skip
            device.hold(step.into, HeldBlock(own.box, views, 0))
            return
        [target] = device.allocate(step.into, own.box, into.types).arrays
        mine = meet(own.box, held.box) if volume(own.box) and volume(held.box) else None
        if mine is not None:
            [kept] = device.read(step.source, mine, source.tensor)
            device.library.copy(target[within(mine, own.box)], kept)
        for piece in own.exchange.receives:
            sent = self.devices[piece.peer].read(step.source, piece.box, source.tensor)
            device.receive([target[within(piece.box, own.box)]], sent)

    def _reduce(self, device: Device, step: ReduceScatter, own: DeviceStep) -> None:
        buffers = self.program.buffers
        kernel = device.library.kernel(self.program.graph, self.program.graph[step.vertex])
        types = buffers[step.source].types
        home = device.allocate(step.into, buffers[step.into].box(self.program.mesh, device.number),
                               buffers[step.into].types)  # fmt: skip
        if not volume(own.box) and volume(home.box):
            return
        total, arrived = device.scratch(own.box, types), device.scratch(own.box, types)
        for place, member in enumerate(own.members):
            part = self.devices[member].read(step.source, own.box, step.vertex)
            into = total if place == 0 else arrived
            if member != device.number:
                device.receive(into, part)
            elif place == 0:
                for target, array in zip(into, part, strict=True):
                    device.library.copy(target, array)
            if place:
                kernel.combine(total, part if member == device.number else arrived)
        kernel.finish(total, home.arrays[0][within(own.box, home.box)])
        device.drop((*total, *arrived))


def _block(given: Any, box: Any) -> Array:
    """A device's own copy of a block of what the caller has."""
    if not volume(box):
        return np.empty(shape_of(box), given.dtype)
    return np.array(given[tuple(slice(low, high) for low, high in box)] if box else given[...])


def _rearranged(
    program: Program, held: Blocks, wanted: Tiling, dtype: Any, devices: list[Device]
) -> list[Array]:
    """A tensor's blocks in another tiling, copied from the devices that hold them."""
    found: list[Array] = []
    for device in devices:
        target = np.empty(shape_of(wanted.box(program.mesh, device.number)), dtype)
        _rearrange(program, held, wanted, device, target)
        found.append(target)
    return found


def _rearrange(
    program: Program, held: Blocks, wanted: Tiling, device: Device, target: Array
) -> None:
    """Fill a device's block of a tiling from the blocks of another tiling, counting what moves."""
    mesh, number = program.mesh, device.number
    tiling, blocks = next(iter(held.items()))
    box, own = wanted.box(mesh, number), tiling.box(mesh, number)
    mine = meet(box, own) if volume(box) and volume(own) else None
    if mine is not None:
        device.library.copy(target[within(mine, box)], blocks[number][within(mine, own)])
    for piece in received(mesh, tiling, wanted, number):
        source = blocks[piece.peer][within(piece.box, tiling.box(mesh, piece.peer))]
        device.receive([target[within(piece.box, box)]], [source])


def _gather(mesh: Any, shape: tuple[int, ...], dtype: Any, blocks: Blocks) -> Array:
    """One array of all blocks; every element is on some device."""
    tiling, arrays = next(iter(blocks.items()))
    whole = np.empty(shape, dtype)
    for number, array in enumerate(arrays):
        box = tiling.box(mesh, number)
        whole[tuple(slice(low, high) for low, high in box)] = array
    return whole

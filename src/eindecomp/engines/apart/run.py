"""One run of the reference engine: its steps, one device after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from eindecomp.engines.apart.blocks import block_of, moved, rearrange
from eindecomp.engines.apart.device import Device, HeldBlock
from eindecomp.engines.events import BytesMoved, TaskFinished, TaskStarted, TensorFreed
from eindecomp.engines.tensor import Tensor
from eindecomp.errors import EinDecompError, RunError
from eindecomp.graph.ops import Fill
from eindecomp.tra.boxes import meet, shape_of, show_box, volume, within
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

if TYPE_CHECKING:
    from eindecomp.engines.apart.blocks import Blocks
    from eindecomp.engines.engine import Listener
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.row import DeviceRow, DeviceStep


@dataclass
class ApartRun:
    """One run: the devices, what was given, and what has moved so far."""

    program: Program
    rows: list[DeviceRow]
    devices: list[Device]
    inputs: Mapping[str, Any]
    scalars: Mapping[str, Any]
    on_event: Listener | None
    start: float
    placed: int = 0

    def __post_init__(self) -> None:
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
        for device, row in zip(self.devices, self.rows, strict=True):
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
            block = block_of(given, own.box)
            device.hold(step.into, HeldBlock(own.box, (block,), block.nbytes))
            return
        blocks: Blocks = given.held()
        if given.mesh == self.program.mesh and buffer.tiling not in blocks:
            block = device.allocate(step.into, own.box, buffer.types)
            rearrange(self.program, blocks, buffer.tiling, device, block.arrays[0])
            return
        tile = moved(self.program, given, buffer.tiling, self.devices)[device.number]
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

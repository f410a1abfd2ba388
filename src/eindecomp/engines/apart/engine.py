"""`ApartEngine`: the oracle of all engines. One process, but every device has arrays of its own.

Steps are carried out one after another, device by device. Whatever a device reads must be in its
own memory; what it lacks is copied piece by piece from the device that the program names, and
counted as it is copied. Nothing is shared, merged or reordered, so that a wrong program fails here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eindecomp.engines.device import Device, HeldBlock
from eindecomp.engines.resources import check_space, needed_space
from eindecomp.engines.result import ByName, Listener, Result, RunRecord, TensorFreed
from eindecomp.engines.tensor import Blocks, Tensor, block_of, place_in_blocks, tensor_of_blocks
from eindecomp.kernels.library import library_of
from eindecomp.lang.dtypes import Array
from eindecomp.layout.boxes import volume, within
from eindecomp.layout.tiling import Tiling
from eindecomp.planner.plan import Plan
from eindecomp.tra.program import steps
from eindecomp.tra.program.device_row import DeviceStep, moves
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import is_view
from eindecomp.tra.program.program import Program

NAME = "apart"


class ApartEngine:
    """Runs plans on devices that share nothing, one step and one device after another."""

    name = NAME

    def prepare(self, plan: Plan) -> ApartProgram:
        """Make a plan ready to run."""
        return ApartProgram(program_of(plan))


class ApartProgram:
    """The rows of a program, one for each device."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.rows = [program.on(device) for device in range(program.devices)]
        self.space = needed_space(program, range(program.devices))

    def place(self, name: str, given: Any) -> Tensor:
        """Give every device its blocks of an input."""
        return place_in_blocks(self.program, NAME, name, given)

    def run(
        self, inputs: ByName, scalars: ByName, donated: Collection[str], on_event: Listener | None
    ) -> Result:
        """Carry out all steps."""
        del donated  # their arrays are let go of with the tensors
        check_space(self.program.graph, self.space)
        record = RunRecord(self.program, on_event)
        library, program = library_of("numpy"), self.program
        devices = [Device(program, row.device, library, scalars) for row in self.rows]
        run = _ApartRun(self, devices, inputs, record)
        with np.errstate(all="ignore"):
            for number, step in enumerate(self.program.steps):
                run.carry_out(number, step)
        tensors = {v.name: self._output(v.name, run) for v in self.program.graph.outputs}
        peak = max(device.peak for device in run.devices)
        return record.result(tensors, placed=run.placed, peak=peak)

    def _output(self, name: str, run: _ApartRun) -> Tensor:
        number = self.program.outputs.get(name)
        if number is None:
            return self.place(name, run.inputs[name])
        blocks = [device.buffers[number].arrays[0] for device in run.devices]
        tiling = self.program.buffers[number].tiling
        return tensor_of_blocks(self.program, NAME, name, {tiling: blocks})

    def close(self) -> None:
        """Nothing is held between runs."""


@dataclass
class _ApartRun:
    """One run: the devices, what was given, and what was moved to place it."""

    owner: ApartProgram
    devices: list[Device]
    inputs: Mapping[str, Any]
    record: RunRecord
    placed: int = 0

    def __post_init__(self) -> None:
        self.program = self.owner.program

    def carry_out(self, number: int, step: steps.Step) -> None:
        """One step on every device."""
        before = sum(device.received for device in self.devices)
        for device, row in zip(self.devices, self.owner.rows, strict=True):
            own = row.steps[number]
            with self.record.task(own, device.number):
                self._on(device, own)
        moved = sum(device.received for device in self.devices) - before
        if isinstance(step, steps.Load):
            self.placed += moved
        else:
            self.record.moved(step, moved)

    def _on(self, device: Device, own: DeviceStep) -> None:
        """A device's part of a step."""
        step = own.step
        match step:
            case steps.Load():
                self._load(device, step, own)
            case steps.Generate():
                device.generate(own)
            case steps.Compute():
                device.compute(own)
            case steps.Move():
                self._move(device, step, own)
            case steps.ReduceScatter(source=source, rows=rows):
                peers = (self.devices[member] for member in own.members)
                parts = (device.fetch(p, source, own.box, p.named(rows, own.box)) for p in peers)
                device.reduce(own, parts)
            case steps.AllGather():
                for piece in own.exchange.receives:
                    peer = self.devices[piece.peer]
                    device.copy_block(step.buffer, peer, step.buffer, piece.box)
            case steps.Free():
                freed = device.free(step.buffer)
                self.record.tell(TensorFreed(self.program.buffers[step.buffer].tensor, freed))

    def _load(self, device: Device, step: steps.Load, own: DeviceStep) -> None:
        buffer = self.program.buffers[step.into]
        given = self.inputs[buffer.tensor]
        if not isinstance(given, Tensor):
            block = block_of(given, own.box)
        elif given.mesh != self.program.mesh:
            block = block_of(given.numpy(), own.box)
        elif buffer.tiling in given.held():
            block = given.held()[buffer.tiling][device.number]
        else:
            held = device.allocate(step.into)
            _rearrange(given.held(), buffer.tiling, device, held.arrays[0])
            held.arrived = None
            return
        device.hold(step.into, HeldBlock(own.box, (block,), block.nbytes))

    def _move(self, device: Device, step: steps.Move, own: DeviceStep) -> None:
        into = self.program.buffers[step.into]
        if is_view(self.program, into, device.number) and volume(own.box):
            views = device.read(step.source, own.box)
            device.hold(step.into, HeldBlock(own.box, views, 0))
            return
        held = device.make_room(own)
        for piece in (*own.exchange.kept, *own.exchange.receives):
            rows = device.named(step.rows, piece.box)
            device.copy_block(step.into, self.devices[piece.peer], step.source, piece.box, rows)
        if step.rows is not None:
            held.arrived = None  # all that is read of it is there


def _rearrange(held: Blocks, wanted: Tiling, device: Device, target: Array) -> None:
    """Fill a device's block of a layout from the blocks of another layout, counting what moves."""
    mesh = device.program.mesh
    tiling, blocks = next(iter(held.items()))
    box, pieces = wanted.box(mesh, device.number), moves(mesh, tiling, wanted, device.number)
    for piece in (*pieces.kept, *pieces.receives):
        source = blocks[piece.peer][within(piece.box, tiling.box(mesh, piece.peer))]
        device.copy(target[within(piece.box, box)], source, piece.peer)

"""A complete engine: devices that share nothing take turns. docs/write-an-engine.md explains it."""

from eindecomp.engines.device import Device, HeldBlock
from eindecomp.engines.result import RunRecord
from eindecomp.engines.tensor import place_in_blocks, placing_bytes, tensor_of_blocks
from eindecomp.kernels.library import library_of
from eindecomp.tra.program import steps
from eindecomp.tra.program.make import program_of


class ToyEngine:
    """Runs plans, one device after another."""

    name = "toy"

    def prepare(self, plan):
        """Make a plan ready to run."""
        return ToyProgram(program_of(plan))


class ToyProgram:
    """A program, and the row of each device."""

    def __init__(self, program):
        self.program = program
        self.rows = [program.on(device) for device in range(program.devices)]

    def place(self, name, given):
        """Put an input on the devices."""
        return place_in_blocks(self.program, "toy", name, given)

    def run(self, inputs, scalars, donated, on_event):  # noqa: ARG002 - donated memory is not used
        """Carry out every step, on one device after another."""
        program, record = self.program, RunRecord(self.program, on_event)
        placed = sum(placing_bytes(program, name, given) for name, given in inputs.items())
        tensors = {name: self.place(name, given) for name, given in inputs.items()}
        library = library_of("numpy")
        devices = [Device(program, row.device, library, scalars) for row in self.rows]
        for number, step in enumerate(program.steps):
            before = sum(device.received for device in devices)
            for device, row in zip(devices, self.rows, strict=True):
                with record.task(row.steps[number], device.number):
                    self.carry_out(row.steps[number], device, devices, tensors)
            record.moved(step, sum(device.received for device in devices) - before)
        for name, number in program.outputs.items():
            blocks = [device.buffers[number].arrays[0] for device in devices]
            layout = program.buffers[number].tiling
            tensors[name] = tensor_of_blocks(program, "toy", name, {layout: blocks})
        peak = max(device.peak for device in devices)
        return record.result(tensors, placed=placed, peak=peak)

    def carry_out(self, own, device, devices, inputs):
        """Carry out a device's part of a step."""
        step = own.step
        match step:
            case steps.Load():
                buffer = self.program.buffers[step.into]
                block = inputs[buffer.tensor].held()[buffer.tiling][device.number]
                device.hold(step.into, HeldBlock(own.box, (block,), block.nbytes))
            case steps.Generate():
                device.generate(own)
            case steps.Compute():
                device.compute(own)
            case steps.Move():
                device.make_room(own)
                for piece in (*own.exchange.kept, *own.exchange.receives):
                    device.copy_block(step.into, devices[piece.peer], step.source, piece.box)
            case steps.AllGather():
                for piece in own.exchange.receives:
                    device.copy_block(step.buffer, devices[piece.peer], step.buffer, piece.box)
            case steps.ReduceScatter():
                parts = (device.fetch(devices[m], step.source, own.box) for m in own.members)
                device.reduce(own, parts)
            case steps.Free():
                device.free(step.buffer)

    def close(self):
        """Nothing is held between runs."""

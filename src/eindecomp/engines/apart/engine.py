"""`ApartEngine`: the oracle of all engines. One process, but every device has arrays of its own.

Steps are carried out one after another, device by device. Whatever a device reads must be in its
own memory; what it lacks is copied piece by piece from the device that the program names, and
counted as it is copied. Nothing is shared, merged or reordered, so that a wrong program fails here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.apart.blocks import blocks_of, gather, moved
from eindecomp.engines.apart.device import Device
from eindecomp.engines.apart.run import ApartRun
from eindecomp.engines.events import RunStarted
from eindecomp.engines.placing import layouts_placed
from eindecomp.engines.result import Result, Stats
from eindecomp.engines.tensor import Tensor
from eindecomp.graph.work import operations
from eindecomp.kernels.library import library_of
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.tiling import Tiling, uncut

if TYPE_CHECKING:
    from eindecomp.engines.apart.blocks import Blocks
    from eindecomp.engines.engine import Listener
    from eindecomp.planner.plan import Plan
    from eindecomp.tra.program.program import Program


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
            blocks = {tiling: blocks_of(self.program, tiling, given) for tiling in wanted}
            return self._tensor(name, blocks)
        devices = [Device(number, library_of("numpy")) for number in range(self.program.devices)]
        blocks = {tiling: moved(self.program, given, tiling, devices) for tiling in wanted}
        return self._tensor(name, blocks)

    def _tensor(self, name: str, blocks: Blocks) -> Tensor:
        vertex, mesh = self.program.graph[name], self.program.mesh
        gathering = partial(gather, mesh, vertex.shape, vertex.dtype)
        tilings = tuple(blocks)
        return Tensor(name, vertex.shape, vertex.dtype, "apart", mesh, tilings, blocks, gathering)

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
        run = ApartRun(program, self.rows, devices, inputs, scalars, on_event, start)
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

"""Carries out the program of a plan over DTensors: DTensor moves, kernels are given.

Every move of the program is one `redistribute`, from the placements that a buffer has to those of
the next; what is computed in between is up to whoever calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Protocol

import torch
from torch.distributed.tensor import DTensor

from eindecomp.frontends.layouts import vertex_cuts, widened
from eindecomp.frontends.placements import Replicated, Sharded, as_made, placed, reduce_op_of
from eindecomp.frontends.torch.dtensor import torch_placement
from eindecomp.kernels.torch.dtypes import torch_type
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.steps import (
    AllGather,
    Compute,
    Free,
    Generate,
    Load,
    Move,
    ReduceScatter,
)

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.placement_types import Placement

    from eindecomp.frontends.layouts import Coarse, VertexCuts
    from eindecomp.frontends.placements import Placed, Places
    from eindecomp.layout.cut import Cut
    from eindecomp.planner.plan import Plan
    from eindecomp.tra.program.buffers import Buffer
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.steps import Step

Blocks = tuple[DTensor, ...]
"""A buffer: one tensor, or those of partial results that are tuples."""


class Maker(Protocol):
    """Makes what a device has of tensors, as plain tensors; cuts are those of the device mesh."""

    def load(self, tensor: str, cut: Cut) -> Tensor:
        """The block of an input or a fill."""
        ...

    def part(self, block: Tensor, held: Cut, wanted: Cut) -> Tensor:
        """What is wanted of a block, which may be more than that."""
        ...

    def compute(
        self, step: Compute, operands: Sequence[Tensor | None], made: Cut
    ) -> Sequence[Tensor]:
        """The tile of a vertex, or the state of its share of the aggregation."""
        ...

    def combine(self, vertex: str, states: Sequence[Tensor]) -> Tensor:
        """The result from all states of a group, which are stacked along dimension 0."""
        ...


@dataclass
class Running:
    """A program as it is carried out: its buffers so far, as DTensors."""

    plan: Plan
    mesh: DeviceMesh
    maker: Maker
    on: Coarse
    """The mesh of the plan's axes that the device mesh is."""
    program: Program = field(init=False)
    cuts: dict[str, VertexCuts] = field(init=False)
    held: dict[int, Blocks] = field(default_factory=dict[int, Blocks])

    def __post_init__(self) -> None:
        self.program = program_of(self.plan)
        self.cuts = {name: self.on.vertex(own) for name, own in vertex_cuts(self.plan).items()}

    def steps(self) -> Iterator[Step]:
        """Carries out step after step, each before it is yielded."""
        for step in self.program.steps:
            self._carry_out(step)
            yield step

    @property
    def outputs(self) -> dict[str, DTensor]:
        """The outputs that are computed, after the last step."""
        return {name: self.held[number][0] for name, number in self.program.outputs.items()}

    def _carry_out(self, step: Step) -> None:
        match step:
            case Load() | Generate():
                self._load(self.program.buffers[step.into])
            case Move():
                wanted = self._home(self.program.buffers[step.into])
                self.held[step.into] = self._moved(step.source, wanted)
            case Compute():
                self._compute(step)
            case ReduceScatter():
                self._reduce(step)
            case AllGather():
                pass  # it belongs to the reduction before it
            case Free():
                del self.held[step.buffer]

    def _load(self, buffer: Buffer) -> None:
        cut = self._widened(buffer.tensor, self.on.cut(buffer.tiling.cut))
        block = self.maker.load(buffer.tensor, cut)
        self.held[buffer.number] = (self._dtensor(buffer.tensor, block, self._home(buffer)),)

    def _moved(self, source: int, wanted: Places) -> Blocks:
        places = torch_placements(wanted)
        return tuple(block.redistribute(placements=places) for block in self.held[source])

    def _compute(self, step: Compute) -> None:
        vertex, own = self.plan.graph[step.vertex], self.cuts[step.vertex]
        operands = [
            None if read is None or cut is None else self._operand(source, read.buffer, cut)
            for source, read, cut in zip(vertex.inputs, step.reads, own.reads, strict=True)
        ]
        made = self.maker.compute(step, operands, own.made)
        reduce_op = reduce_op_of(vertex) if step.is_partial else ""
        tile = self._placed(vertex.name, own.made)
        if reduce_op is not None:
            places = as_made(tile, own.summed, reduce_op)
            self.held[step.into] = (self._dtensor(vertex.name, made[0], places),)
            return
        # DTensor knows no such partial results: they lie side by side in a dimension of their own.
        members = prod(self.on.mesh.sizes[axis] for axis in own.summed)
        places = _stacked(tile, own, Sharded(0))
        self.held[step.into] = tuple(
            self._of_shape((members, *vertex.shape), each.unsqueeze(0), places) for each in made
        )

    def _operand(self, source: str, buffer: int, cut: Cut) -> Tensor:
        """The block that a vertex reads, of which DTensor may hold more than is wanted."""
        [wide] = self._moved(buffer, self._placed(source, cut))
        return self.maker.part(wide.to_local(), self._widened(source, cut), cut)

    def _reduce(self, step: ReduceScatter) -> None:
        buffer = self.program.buffers[step.into]
        vertex, own = self.plan.graph[step.vertex], self.cuts[step.vertex]
        home = self._home(buffer)
        if (reduce_op := reduce_op_of(vertex)) is not None:
            # What is scattered first is not summed in full by everyone.
            whole = [axis for axis in own.summed if isinstance(home[axis], Replicated)]
            scattered = as_made(home, tuple(whole), reduce_op)
            self.held[step.source] = self._moved(step.source, scattered)
            [reduced] = self._moved(step.source, home)
            block = reduced.to_local().to(torch_type(vertex.dtype))
            self.held[step.into] = (self._dtensor(vertex.name, block, home),)
            return
        tile = self._placed(vertex.name, own.made)
        gathered = self._moved(step.source, _stacked(tile, own, Replicated()))
        block = self.maker.combine(vertex.name, [each.to_local() for each in gathered])
        whole = self._dtensor(vertex.name, block, tile)
        self.held[step.into] = (whole.redistribute(placements=torch_placements(home)),)

    # Where tensors lie

    def _widened(self, tensor: str, cut: Cut) -> Cut:
        return widened(cut, self.plan.graph[tensor].shape)

    def _placed(self, tensor: str, cut: Cut) -> Places:
        shape = self.plan.graph[tensor].shape
        return placed(self.on.mesh, self._widened(tensor, cut), shape, tensor)

    def _home(self, buffer: Buffer) -> Places:
        return self._placed(buffer.tensor, self.on.cut(buffer.tiling.cut))

    def _dtensor(self, tensor: str, block: Tensor, places: Places) -> DTensor:
        return self._of_shape(self.plan.graph[tensor].shape, block, places)

    def _of_shape(self, shape: Sequence[int], block: Tensor, places: Places) -> DTensor:
        return DTensor.from_local(
            block,
            self.mesh,
            torch_placements(places),
            run_check=False,
            shape=torch.Size(shape),
            stride=torch.empty(tuple(shape), device="meta").stride(),
        )


def _stacked(tile: Places, own: VertexCuts, along: Placed) -> Places:
    """The placements of partial results that lie side by side in a dimension of their own."""
    found: list[Placed] = []
    for axis, each in enumerate(tile):
        if axis in own.summed:
            found.append(along)
        elif isinstance(each, Sharded):
            found.append(Sharded(each.dim + 1, each.split_factor))
        else:
            found.append(each)
    return tuple(found)


def torch_placements(places: Places) -> list[Placement]:
    """Placements on a device mesh, which has a dimension even for one device."""
    return [torch_placement(own) for own in places or (Replicated(),)]

"""`plan.verify_torch()`: what DTensor moves under a plan's placements beside what was planned.

One device of a pretended group asks DTensor for every move of the plan's program, with tensors that
have no elements: nothing is computed and nothing is sent, but DTensor issues its collectives, and
these are counted.
"""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from eindecomp.errors import PlanError
from eindecomp.frontends.placements import Replicated, Sharded, as_made, placed, reduce_op_of
from eindecomp.frontends.plan_cuts import coarsest, of_shape, vertex_cuts, widened
from eindecomp.frontends.torch.collectives import Recorder, row_of
from eindecomp.frontends.torch.dtensor import make_mesh
from eindecomp.frontends.torch.exporting import set_otherwise
from eindecomp.frontends.torch.placing import torch_placements
from eindecomp.graph.work import state_bytes, state_types
from eindecomp.kernels.torch.tensors import torch_type
from eindecomp.layout.boxes import shape_of
from eindecomp.layout.cut import pieces_by
from eindecomp.layout.tiling import box_on
from eindecomp.planner.comparison import Verification
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.steps import AllGather, Compute, Move, ReduceScatter

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from torch.distributed.device_mesh import DeviceMesh

    from eindecomp.frontends.placements import Placed, Places
    from eindecomp.frontends.plan_cuts import Coarse, VertexCuts
    from eindecomp.frontends.torch.collectives import Collective
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.cut import Cut
    from eindecomp.planner.plan import Plan
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.steps import Step

NO_EXCHANGE = "gloo has no all-to-all: the tensor is gathered"
_LOGGERS = ("torch.distributed.tensor._redistribute", "torch.distributed.tensor._collective_utils")
"""They advise to flatten meshes, which changes no bytes."""
_MOVING = (Compute, Move, ReduceScatter, AllGather)


def verify_torch(
    plan: Plan, device: str = "cuda", shape: Sequence[int] | None = None
) -> Verification:
    """Count what DTensor moves under a plan's placements, on GPUs (NCCL) or, "cpu", with gloo.

    `shape` is that of the device mesh: by default the fewest dimensions that the plan allows.
    """
    with pretended_mesh(plan, device, shape) as (mesh, on):
        cuts = {name: on.vertex(own) for name, own in vertex_cuts(plan).items()}
        moves = Redistributions(plan, program_of(plan), cuts, mesh, on)
        rows = _carried_out(moves)
    return Verification(
        tuple(row_of(name, r.planned, r.collectives, r.reasons) for name, r in rows.items()),
        dict(zip(on.mesh.names, on.mesh.sizes, strict=True)),
    )


@contextmanager
def pretended_mesh(
    plan: Plan, device: str, shape: Sequence[int] | None
) -> Generator[tuple[DeviceMesh, Coarse]]:
    """A device mesh for a plan, of devices that are not there, and its axes as the plan's."""
    if device not in ("cuda", "cpu"):
        raise PlanError(f"the device is 'cuda' or 'cpu', not {device!r}")
    on = coarsest(plan) if shape is None else of_shape(plan, shape)
    quiet = [(logging.getLogger(name), "disabled", True) for name in _LOGGERS]
    with pretended_group(plan.devices), set_otherwise(quiet):
        yield make_mesh(plan, on, device), on


@contextmanager
def pretended_group(devices: int) -> Generator[None]:
    """A process group of which this process is the first and the others are not there."""
    if dist.is_initialized():
        raise PlanError(
            "this process belongs to a process group already: verify where it does not, or after "
            "torch.distributed.destroy_process_group()"
        )
    told = sys.excepthook  # which a process group changes, to name its rank
    dist.init_process_group("fake", rank=0, world_size=devices)
    try:
        yield
    finally:
        dist.destroy_process_group()
        sys.excepthook = told


@dataclass(slots=True)
class _Row:
    """What is moved for one vertex: as planned, by DTensor, and why that differs."""

    planned: int = 0
    collectives: list[Collective] = field(default_factory=list["Collective"])
    reasons: list[str] = field(default_factory=list[str])


def _carried_out(moves: Redistributions) -> dict[str, _Row]:
    """What is moved for each vertex, step by step."""
    rows = {vertex: _Row() for vertex in moves.program.bytes_by_vertex}
    steps = [step for step in moves.program.steps if isinstance(step, _MOVING)]
    with Recorder() as recorder:
        for step, after in pairwise([*steps, None]):
            if step is None or isinstance(step, AllGather):
                continue  # DTensor did it together with the reduction
            moves.ask_for(step)
            row, collectives = rows[step.vertex], recorder.take()
            planned = moves.program.moved_by(step)
            if isinstance(after, AllGather):
                planned += moves.program.moved_by(after)
            row.planned += planned
            row.collectives += collectives
            if planned != sum(each.nbytes for each in collectives):
                row.reasons.append(reason(moves, step, planned, collectives))
    return rows


@dataclass(frozen=True, slots=True)
class Redistributions:
    """The moves of a program as DTensor's, of tensors that have shapes and no elements."""

    plan: Plan
    program: Program
    cuts: Mapping[str, VertexCuts]
    """Those of each vertex, by the device mesh."""
    mesh: DeviceMesh
    on: Coarse
    """The mesh of the plan's axes that the device mesh is."""

    def ask_for(self, step: Step) -> None:
        """Let DTensor do what a step moves; an all-gather belongs to the reduction before it."""
        match step:
            case Move() | Compute():
                for tensor, held, wanted in self.ends(step):
                    vertex = self.plan.graph[tensor]
                    shape = shape_of(box_on(self.on.mesh, widened(held, vertex.shape), 0))
                    ways = (self._placed(tensor, held), self._placed(tensor, wanted))
                    self._redistribute(vertex.shape, shape, vertex.dtype, ways)
            case ReduceScatter():
                [(tensor, _, home)] = self.ends(step)
                self._reduce(self.plan.graph[tensor], self._placed(tensor, home))
            case _:
                pass

    def ends(self, step: Step) -> list[tuple[str, Cut, Cut]]:
        """The tensors that a step moves, each with its cut before and after."""
        buffers = self.program.buffers
        match step:
            case Move() | ReduceScatter():
                pairs = [(buffers[step.source], buffers[step.into].tiling.cut)]
            case Compute():
                pairs = [(buffers[read.buffer], read.cut) for read in step.reads if read]
            case _:
                pairs = []
        return [
            (held.tensor, self.on.cut(held.tiling.cut), self.on.cut(wanted))
            for held, wanted in pairs
        ]

    def _reduce(self, vertex: Vertex, home: Places) -> None:
        """Let DTensor bring partial results home."""
        own = self.cuts[vertex.name]
        tile = self._placed(vertex.name, own.made)
        types = state_types(self.plan.graph, vertex)
        shape = shape_of(box_on(self.on.mesh, own.made, 0))
        if (reduce_op := reduce_op_of(vertex)) is not None:
            # What is scattered first is not summed in full by everyone.
            whole = tuple(axis for axis in own.summed if isinstance(home[axis], Replicated))
            ways = (as_made(tile, own.summed, reduce_op), as_made(home, whole, reduce_op), home)
            self._redistribute(vertex.shape, shape, types[0], ways)
            return
        # DTensor knows no such partial results: they lie side by side in a dimension of their own.
        members = prod(self.on.mesh.sizes[axis] for axis in own.summed)
        ways = (_stacked(tile, own, Sharded(0)), _stacked(tile, own, Replicated()))
        for each in types:
            self._redistribute((members, *vertex.shape), (1, *shape), each, ways)
        self._redistribute(vertex.shape, shape, vertex.dtype, (tile, home))

    def _placed(self, tensor: str, cut: Cut) -> Places:
        shape = self.plan.graph[tensor].shape
        return placed(self.on.mesh, widened(cut, shape), shape, tensor)

    def _redistribute(
        self, shape: Sequence[int], local: Sequence[int], dtype: DType, ways: Sequence[Places]
    ) -> None:
        """Ask for a tensor, of which this device has a block, in one layout after another."""
        first, *rest = [torch_placements(places, self.mesh) for places in ways]
        tensor = DTensor.from_local(
            torch.empty(tuple(local), dtype=torch_type(dtype), device="meta"),
            self.mesh,
            first,
            run_check=False,
            shape=torch.Size(shape),
            stride=torch.empty(tuple(shape), device="meta").stride(),
        )
        for places in rest:
            tensor = tensor.redistribute(placements=places)


def _stacked(tile: Places, own: VertexCuts, along: Placed) -> Places:
    """The placements of partial results that lie side by side in a dimension of their own."""
    return tuple(
        along
        if axis in own.summed
        else Sharded(each.dim + 1, each.split_factor)
        if isinstance(each, Sharded)
        else each
        for axis, each in enumerate(tile)
    )


def reason(
    moves: Redistributions, step: Step, planned: int, collectives: Sequence[Collective]
) -> str:
    """Why the collectives of a step do not move what was planned."""
    reduces = isinstance(step, ReduceScatter)
    if reduces and reduce_op_of(moves.plan.graph[step.vertex]) is None:
        return "DTensor cannot reduce by this aggregation: partial results are gathered"
    found = list(dict.fromkeys(_causes(moves, step, collectives)))
    return ", ".join(found) or _told(step, planned, collectives)


def _causes(moves: Redistributions, step: Step, collectives: Sequence[Collective]) -> Iterator[str]:
    graph, mesh = moves.plan.graph, moves.on.mesh
    cuts = [(tensor, cut) for tensor, *ends in moves.ends(step) for cut in ends]
    for tensor, cut in cuts:
        if widened(cut, graph[tensor].shape) != cut:
            yield f"a part of {tensor} is wanted that no placement can say: more of it is fetched"
    kinds = {each.kind for each in collectives}
    if any(each.is_fallback for each in collectives):
        yield NO_EXCHANGE
    if any(list(span.axes) != sorted(span.axes) for _, cut in cuts for span in cut):
        yield "axes are not in mesh order: strided shards are gathered one axis after another"
    if any(span.units % pieces_by(mesh, span.axes) for _, cut in cuts for span in cut):
        yield "uneven pieces are padded"
    if isinstance(step, ReduceScatter) and "all-reduce" in kinds:
        vertex = graph[step.vertex]
        if state_bytes(graph, vertex) != vertex.dtype.itemsize:
            yield f"partial results are all-reduced as they are, the plan gathers {vertex.dtype}"
        else:
            yield "partial results are all-reduced, one dimension of the mesh after another"


def _told(step: Step, planned: int, collectives: Sequence[Collective]) -> str:
    """What DTensor does instead, where there is no more to say."""
    how = " and ".join(dict.fromkeys(str(each) for each in collectives)) or "nothing"
    what = (
        str(step.pattern) if isinstance(step, Move) else "reduction" if planned else "local block"
    )
    return f"planned as {what}, DTensor goes by {how}"

"""`plan.verify_torch()`: what DTensor moves under a plan's placements beside what was planned.

The program of the plan is carried out by one device of a pretended group, on tensors without
elements: nothing is computed and nothing is sent, but DTensor issues its collectives, and these are
counted.
"""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from eindecomp.errors import PlanError
from eindecomp.frontends.layouts import coarsest, of_shape, widened
from eindecomp.frontends.placements import reduce_op_of
from eindecomp.frontends.torch.carry_out import Running
from eindecomp.frontends.torch.collectives import Recorder, row_of
from eindecomp.frontends.torch.dtensor import make_mesh
from eindecomp.graph.state_types import state_bytes, state_types
from eindecomp.kernels.torch.dtypes import torch_type
from eindecomp.layout.boxes import shape_of
from eindecomp.layout.cut import pieces_by
from eindecomp.layout.tiling import box_on
from eindecomp.planner.verification import Verification
from eindecomp.tra.program.steps import AllGather, Compute, Move, ReduceScatter

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh

    from eindecomp.frontends.layouts import Coarse
    from eindecomp.frontends.torch.carry_out import Running
    from eindecomp.frontends.torch.collectives import Collective
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.cut import Cut
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.plan import Plan
    from eindecomp.planner.verification import Verified
    from eindecomp.tra.program.steps import Step

_LOGGERS = ("torch.distributed.tensor._redistribute", "torch.distributed.tensor._collective_utils")


def verify_torch(
    plan: Plan, device: str = "cuda", shape: Sequence[int] | None = None
) -> Verification:
    """Count what DTensor moves under a plan's placements, on GPUs (NCCL) or, "cpu", with gloo.

    `shape` is that of the device mesh: by default the fewest dimensions that the plan allows.
    """
    on = _mesh_of(plan, shape)
    with pretended_mesh(plan, device, shape) as mesh:
        return _verified(plan, mesh, on)


def _mesh_of(plan: Plan, shape: Sequence[int] | None) -> Coarse:
    return coarsest(plan) if shape is None else of_shape(plan, shape)


@contextmanager
def pretended_mesh(plan: Plan, device: str, shape: Sequence[int] | None) -> Generator[DeviceMesh]:
    """A device mesh for a plan, of devices that are not there."""
    if device not in ("cuda", "cpu"):
        raise PlanError(f"the device is 'cuda' or 'cpu', not {device!r}")
    on = _mesh_of(plan, shape)
    with pretended_group(plan.devices), _quiet():
        yield make_mesh(plan, on, device)


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


@contextmanager
def _quiet() -> Generator[None]:
    """Without DTensor's advice to flatten meshes, which changes no bytes."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


@dataclass(frozen=True, slots=True)
class _Moved:
    """What one step moves: as planned, and by DTensor."""

    vertex: str
    planned: int
    collectives: tuple[Collective, ...]
    reason: str = ""
    """Why DTensor moves more or less, where it does."""


def _verified(plan: Plan, mesh: DeviceMesh, on: Coarse) -> Verification:
    running = Running(plan, mesh, _WithoutElements(plan, on.mesh), on)
    steps = _moves(running)
    rows: list[Verified] = []
    for vertex in running.program.bytes_by_vertex:
        own = [step for step in steps if step.vertex == vertex]
        collectives = [each for step in own for each in step.collectives]
        reasons = [step.reason for step in own]
        rows.append(row_of(vertex, sum(step.planned for step in own), collectives, reasons))
    return Verification(tuple(rows), dict(zip(on.mesh.names, on.mesh.sizes, strict=True)))


def _moves(running: Running) -> list[_Moved]:
    """The steps in which something moves, by the plan or by DTensor."""
    found: list[_Moved] = []
    with Recorder() as recorder:
        for step in running.steps():
            collectives = recorder.take()
            planned = running.program.moved_by(step)
            if isinstance(step, AllGather):  # DTensor did it together with the reduction
                last = found.pop()
                planned, collectives = planned + last.planned, last.collectives
            if planned or collectives:
                differs = planned != sum(each.nbytes for each in collectives)
                why = reason(running, step, planned, collectives) if differs else ""
                found.append(_Moved(_vertex_of(step), planned, collectives, why))
    return found


def _vertex_of(step: Step) -> str:
    match step:
        case Compute() | Move() | ReduceScatter() | AllGather():
            return step.vertex
        case _:
            raise AssertionError(f"{step} moves nothing")


@dataclass(frozen=True, slots=True)
class _WithoutElements:
    """Makes tensors that have a shape and a type only: those of the first device."""

    plan: Plan
    mesh: Mesh

    def load(self, tensor: str, cut: Cut) -> Tensor:
        return self._empty(cut, self.plan.graph[tensor].dtype)

    def part(self, block: Tensor, held: Cut, wanted: Cut) -> Tensor:
        return block if held == wanted else block.new_empty(shape_of(box_on(self.mesh, wanted, 0)))

    def compute(self, step: Compute, operands: Sequence[object], made: Cut) -> list[Tensor]:
        del operands
        vertex = self.plan.graph[step.vertex]
        types = state_types(self.plan.graph, vertex) if step.is_partial else (vertex.dtype,)
        return [self._empty(made, each) for each in types]

    def combine(self, vertex: str, states: Sequence[Tensor]) -> Tensor:
        return states[0][0].to(torch_type(self.plan.graph[vertex].dtype))

    def _empty(self, cut: Cut, dtype: DType) -> Tensor:
        shape = shape_of(box_on(self.mesh, cut, 0))
        return torch.empty(shape, dtype=torch_type(dtype), device="meta")


NO_EXCHANGE = "gloo has no all-to-all: the tensor is gathered"


def reason(running: Running, step: Step, planned: int, collectives: Sequence[Collective]) -> str:
    """Why the collectives of a step do not move what was planned."""
    reduces = isinstance(step, ReduceScatter | AllGather)
    if reduces and reduce_op_of(running.plan.graph[step.vertex]) is None:
        return "DTensor cannot reduce by this aggregation: partial results are gathered"
    found = list(dict.fromkeys(_causes(running, step, collectives)))
    return ", ".join(found) or _told(step, planned, collectives)


def _causes(running: Running, step: Step, collectives: Sequence[Collective]) -> Iterator[str]:
    graph, mesh = running.plan.graph, running.on.mesh
    cuts = _cuts(running, step)
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
    if isinstance(step, ReduceScatter | AllGather) and "all-reduce" in kinds:
        vertex = graph[step.vertex]
        if state_bytes(graph, vertex) != vertex.dtype.itemsize:
            yield f"partial results are all-reduced as they are, the plan gathers {vertex.dtype}"
        else:
            yield "partial results are all-reduced, one dimension of the mesh after another"


def _cuts(running: Running, step: Step) -> list[tuple[str, Cut]]:
    """The cuts between which a step moves tensors."""
    buffers, on = running.program.buffers, running.on
    match step:
        case Move() | ReduceScatter():
            ends = (buffers[step.source], buffers[step.into])
            return [(each.tensor, on.cut(each.tiling.cut)) for each in ends]
        case AllGather():
            return [(step.vertex, on.cut(buffers[step.buffer].tiling.cut))]
        case Compute():
            reads = (read for read in step.reads if read is not None)
            pairs = [(buffers[read.buffer], read.cut) for read in reads]
            return [
                (held.tensor, on.cut(cut)) for held, own in pairs for cut in (held.tiling.cut, own)
            ]
        case _:
            return []


def _told(step: Step, planned: int, collectives: Sequence[Collective]) -> str:
    """What DTensor does instead, where there is no more to say."""
    how = " and ".join(dict.fromkeys(str(each) for each in collectives)) or "nothing"
    what = (
        str(step.pattern) if isinstance(step, Move) else "reduction" if planned else "local block"
    )
    return f"planned as {what}, DTensor goes by {how}"

"""`plan.verify_torch()`: what DTensor moves under a plan's placements beside what was planned.

The program of the plan is carried out by one device of a pretended group, on tensors without
elements: nothing is computed and nothing is sent, but DTensor issues its collectives, and these are
counted.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text
from torch.distributed.device_mesh import DeviceMesh

from eindecomp.errors import PlanError
from eindecomp.frontends.coarse import coarsest, of_shape
from eindecomp.frontends.torch.carry_out import Running
from eindecomp.frontends.torch.collectives import Collective, Recorder
from eindecomp.frontends.torch.reasons import reason
from eindecomp.graph.state_types import state_types
from eindecomp.kernels.torch.dtypes import torch_type
from eindecomp.show.words import render
from eindecomp.tra.boxes import shape_of
from eindecomp.tra.program.steps import AllGather, Compute, Move, ReduceScatter
from eindecomp.tra.program.tiling import box_on

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from torch import Tensor

    from eindecomp.frontends.coarse import Coarse
    from eindecomp.lang.dtypes import DType
    from eindecomp.planner.plan import Plan
    from eindecomp.planner.space.cut import Cut
    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.tra.program.steps import Step

_WIDTH = 110
_LOGGERS = ("torch.distributed.tensor._redistribute", "torch.distributed.tensor._collective_utils")


@dataclass(frozen=True, slots=True)
class Counted:
    """What one step of a plan moves: as planned, and by DTensor."""

    vertex: str
    planned: int
    counted: int
    collectives: tuple[Collective, ...]
    reason: str = ""
    """Why DTensor moves more or less, where it does."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What DTensor moves beside the plan, step by step and vertex by vertex."""

    mesh: Mapping[str, int]
    """The dimensions of the device mesh for which this holds."""
    steps: tuple[Counted, ...]
    """The steps in which something moves, by the plan or by DTensor."""
    vertices: tuple[str, ...]

    @property
    def rows(self) -> tuple[Counted, ...]:
        """One row for each vertex, and for each input that is copied to a second layout."""
        steps: dict[str, list[Counted]] = {vertex: [] for vertex in self.vertices}
        for step in self.steps:
            steps[step.vertex].append(step)
        return tuple(_together(vertex, own) for vertex, own in steps.items())

    @property
    def planned(self) -> int:
        """The bytes that the plan says will move."""
        return sum(step.planned for step in self.steps)

    @property
    def counted(self) -> int:
        """The bytes that devices receive in DTensor's collectives."""
        return sum(step.counted for step in self.steps)

    @property
    def matches(self) -> bool:
        """Whether every step moves what was planned."""
        return all(step.planned == step.counted for step in self.steps)

    def __iter__(self) -> Iterator[Counted]:
        return iter(self.rows)

    def __str__(self) -> str:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("vertex", overflow="fold")
        table.add_column("planned", justify="right", no_wrap=True)
        table.add_column("DTensor", justify="right", no_wrap=True)
        table.add_column("collectives, and why they differ", overflow="fold")
        for row in self.rows:
            kinds = dict.fromkeys(str(each) for each in row.collectives)
            told = ", ".join(kinds) + (f": {row.reason}" if row.reason else "")
            table.add_row(*map(Text, (row.vertex, f"{row.planned:,}", f"{row.counted:,}", told)))
        shape = ", ".join(f"{name}: {size}" for name, size in self.mesh.items())
        total = (
            f"{self.planned:,} bytes planned, {self.counted:,} moved by DTensor on a mesh of "
            f"({shape})"
        )
        return render(_WIDTH, table, Text(total)).strip("\n")


def _together(vertex: str, steps: Sequence[Counted]) -> Counted:
    """All steps of a vertex as one row."""
    return Counted(
        vertex,
        sum(step.planned for step in steps),
        sum(step.counted for step in steps),
        tuple(each for step in steps for each in step.collectives),
        "; ".join(dict.fromkeys(step.reason for step in steps if step.reason)),
    )


def verify_torch(
    plan: Plan, device: str = "cuda", shape: Sequence[int] | None = None
) -> Verification:
    """Count what DTensor moves under a plan's placements, on GPUs (NCCL) or, "cpu", with gloo.

    `shape` is that of the device mesh: by default the fewest dimensions that the plan allows.
    """
    if device not in ("cuda", "cpu"):
        raise PlanError(f"the device is 'cuda' or 'cpu', not {device!r}")
    on = coarsest(plan) if shape is None else of_shape(plan, shape)
    with pretended_group(plan.devices), _quiet():
        mesh = DeviceMesh(
            device,
            torch.arange(plan.devices).reshape(on.mesh.sizes or (1,)),
            mesh_dim_names=on.mesh.names or ("axis0",),
        )
        return _verified(plan, mesh, on)


@contextmanager
def pretended_group(devices: int) -> Generator[None]:
    """A process group of which this process is the first and the others are not there."""
    if dist.is_initialized():
        raise PlanError(
            "this process belongs to a process group already: verify where it does not, or after "
            "torch.distributed.destroy_process_group()"
        )
    dist.init_process_group("fake", rank=0, world_size=devices)
    try:
        yield
    finally:
        dist.destroy_process_group()


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


def _verified(plan: Plan, mesh: DeviceMesh, on: Coarse) -> Verification:
    running = Running(plan, mesh, _WithoutElements(plan, on.mesh), on)
    program = running.program
    found: list[Counted] = []
    with Recorder() as recorder:
        for step in running.steps():
            collectives = recorder.take()
            planned = program.moved_by(step)
            if isinstance(step, AllGather):  # DTensor did it together with the reduction
                last = found.pop()
                planned, collectives = planned + last.planned, last.collectives
            if planned or collectives:
                counted = sum(each.nbytes for each in collectives)
                told = reason(running, step, planned, collectives) if planned != counted else ""
                found.append(Counted(_vertex_of(step), planned, counted, collectives, told))
    shape = dict(zip(on.mesh.names, on.mesh.sizes, strict=True))
    return Verification(shape, tuple(found), tuple(program.bytes_by_vertex))


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

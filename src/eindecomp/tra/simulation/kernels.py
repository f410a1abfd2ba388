"""How long kernel calls take on every device: what the simulator asks a machine about computing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.graph.work import tile_operations
from eindecomp.layout.tiling import Tiling
from eindecomp.layout.view import view_of
from eindecomp.planner.costs.shape_class import function_seconds, rate
from eindecomp.tra.simulation.blocks import shared_volumes, sides, volumes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eindecomp.graph.ops import Op
    from eindecomp.layout.cut import Cut
    from eindecomp.layout.view import Dims
    from eindecomp.planner.costs.machine import Machine
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.steps import Compute, Generate, ReduceScatter

    Floats = NDArray[np.float64]


def compute_seconds(
    machine: Machine,
    operations: Any,
    traffic: Any,
    op: Op | None = None,
    item: int = 4,
    functions: Any = 0.0,
) -> Floats:
    """The longer of computing and of reading and writing memory, and what a task takes beside.

    `op` and the bytes of an item say by which rate of the machine it is computed; without, it is
    element by element. `functions` are the seconds of elementary functions.
    """
    work = np.asarray(operations, dtype=np.float64)
    moved = np.asarray(traffic, dtype=np.float64)
    flops = rate(machine.flops, op, work / np.maximum(moved / item, 1.0), item)
    computing = work / flops + functions
    return np.maximum(computing, moved / machine.memory_bandwidth) + machine.task_overhead


def kernel_seconds(program: Program, machine: Machine, step: Compute) -> Floats:
    """What a kernel call takes on every device: for its own tile, not the largest one."""
    graph, mesh = program.graph, program.mesh
    vertex = graph[step.vertex]
    view, made = view_of(graph, vertex), program.buffers[step.into]
    lengths: dict[str, Any] = {}
    _note_lengths(lengths, view.output, made.tiling.cut, program)
    traffic = volumes(mesh, made.tiling) * float(made.item)
    for dims, read in zip(view.reads, step.reads, strict=True):
        if dims is not None and read is not None:
            _note_lengths(lengths, dims, read.cut, program)
            item = program.buffers[read.buffer].item
            traffic = traffic + shared_volumes(mesh, read.cut, read.cut) * float(item)
    tile = {label: lengths[label].astype(np.float64) for label in view.labels}
    work, item = tile_operations(vertex.op, tile), vertex.dtype.itemsize
    functions = function_seconds(machine.flops, vertex.op, tile, item)
    return compute_seconds(machine, work, traffic, vertex.op, item, functions)


def _note_lengths(lengths: dict[str, Any], dims: Dims, cut: Cut, program: Program) -> None:
    """How many units of each label a tile has, by the dimensions that carry it."""
    for dim, length in zip(dims, sides(program.mesh, cut), strict=True):
        if dim.label is not None:
            lengths[dim.label] = length // dim.scale


def fill_seconds(program: Program, machine: Machine, step: Generate) -> Floats:
    """What making the block of a fill takes: its elements are written."""
    made = program.buffers[step.into]
    return compute_seconds(machine, 0.0, volumes(program.mesh, made.tiling) * float(made.item))


def combine_seconds(program: Program, machine: Machine, step: ReduceScatter, ways: int) -> Floats:
    """What combining the blocks of so many devices takes: each is read, the result is written."""
    source, into = program.buffers[step.source], program.buffers[step.into]
    elements = volumes(program.mesh, Tiling(into.tiling.cut, step.split)).astype(np.float64)
    traffic = elements * (ways * source.item + into.item)
    return compute_seconds(machine, (ways - 1) * len(source.types) * elements, traffic)

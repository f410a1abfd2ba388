"""Refuses what cannot fit in the memory of this machine before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.engines.available import available
from eindecomp.errors import InputError
from eindecomp.planner.costs.byte_sizes import show_bytes
from eindecomp.tra.program.memory import Peak, peak_of, results_on
from eindecomp.tra.program.steps import Compute

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.tra.program.program import Program

_LITTLE = 1 << 24  # bytes that there always are: to look would take longer than to run


def check_space(
    graph: Graph, space: Peak, loads: int = 0, spare: Callable[[], int] = lambda: 0
) -> None:
    """Raise if the machine has not got the memory that a run needs beside what it is given.

    `loads` are bytes of tiles that are read; `spare` counts those that are held already for the
    run.
    """
    needed = space.bytes + loads
    if needed < _LITTLE:
        return
    free = available()
    if free is not None and needed > free and needed > free + spare():
        raise InputError(
            f"running needs {show_bytes(needed)} for tiles that it loads, intermediate "
            f"tensors and results when it comes to {graph[space.vertex]}; "
            f"{show_bytes(free)} are available"
        )


def is_little(program: Program) -> bool:
    """Whether all devices together could hold all tensors several times over, unseen."""
    total = sum(v.elements * v.dtype.itemsize for v in program.graph.vertices.values())
    return total * program.devices < _LITTLE


def needed_space(program: Program, devices: Sequence[int]) -> Peak:
    """The most bytes that devices of one memory hold at once beside the inputs."""
    if is_little(program):
        return Peak(0, "")
    return peak_of(results_on(program, devices))


def largest_tile(program: Program) -> Peak:
    """The most bytes that one task makes of a vertex on one device."""
    if is_little(program):
        return Peak(0, "")
    tiles = (
        Peak(program.buffers[step.into].nbytes(program.mesh, device), step.vertex)
        for step in program.steps
        if isinstance(step, Compute)
        for device in range(program.devices)
    )
    return max(tiles, key=lambda each: each.bytes, default=Peak(0, ""))


def _bytes_everywhere(program: Program, number: int) -> int:
    buffer = program.buffers[number]
    return sum(buffer.nbytes(program.mesh, device) for device in range(program.devices))


def output_space(program: Program) -> Peak:
    """The bytes of all outputs together, and the largest of them."""
    sizes = {name: _bytes_everywhere(program, k) for name, k in program.outputs.items()}
    largest = max(sizes, key=sizes.__getitem__, default="")
    return Peak(sum(sizes.values()), largest)


def bytes_of(program: Program, names: Collection[str]) -> int:
    """The bytes that tensors of a program take on all devices together, in one layout each."""
    return sum(_bytes_everywhere(program, program.inputs[name][0].number) for name in names)

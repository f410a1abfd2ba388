"""Where a rank's row of a program has its blocks, with whom it shares them, and what a step is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from eindecomp.engines.spmd.rank_memory import RankMemory, Room
from eindecomp.layout.boxes import shape_of
from eindecomp.layout.tiling import group_along
from eindecomp.tra.program.patterns import Exchanged
from eindecomp.tra.program.steps import Move, Role

if TYPE_CHECKING:
    from eindecomp.engines.spmd.rank_arrays import RankArrays
    from eindecomp.engines.spmd.transport import Group, Transport
    from eindecomp.kernels.library import KernelLibrary
    from eindecomp.layout.boxes import Box
    from eindecomp.tra.program.program import Program

Do = Callable[[RankMemory], None]
SMALL, _LITTLE = 1 << 16, 1 << 24
"""Bytes of a buffer that is kept from run to run, and of all that are."""


@dataclass(frozen=True, slots=True)
class BoundStep:
    """What a rank does in a step: `begin`, and for communication what ends it."""

    begin: Do
    end: Do | None = None


@dataclass(slots=True)
class RowPlaces:
    """A rank of a program, and what it shares with the others."""

    program: Program
    rank: int
    transport: Transport
    arrays: RankArrays
    shared: frozenset[int] = frozenset()
    """The buffers that other ranks read where they are."""
    left: int = _LITTLE
    """Bytes that may be kept from run to run still."""

    @property
    def library(self) -> KernelLibrary:
        """What computes tiles."""
        return self.arrays.library

    def box(self, buffer: int) -> Box:
        """The rank's block of a buffer."""
        return self.program.buffers[buffer].box(self.program.mesh, self.rank)

    def room(self, buffer: int) -> Room:
        """What arrays a buffer has; small ones are kept from run to run, unless they are given."""
        shape = shape_of(self.box(buffer))
        shapes = tuple((shape, dtype) for dtype in self.program.buffers[buffer].types)
        found = Room(shapes, sum(prod(shape) * dtype.itemsize for _, dtype in shapes))
        is_ours = buffer not in self.program.outputs.values()
        if is_ours and found.nbytes <= min(SMALL, self.left):
            self.left -= found.nbytes
            found.kept = tuple(self.library.empty(shape, dtype) for shape, dtype in shapes)
        found.is_shared = buffer in self.shared
        return found

    def group(self, axes: int) -> Group:
        """The ranks that differ from this one along some axes only."""
        mesh = self.program.mesh
        groups = {group_along(mesh, axes, device): None for device in range(mesh.devices)}
        return self.arrays.carrier.group(tuple(groups))


def read_in_place(program: Program) -> frozenset[int]:
    """The buffers that ranks of one machine had better read where they are.

    That is what is sent all-to-all, unless it is given or little.
    """
    sources = {
        step.source
        for step in program.steps
        if isinstance(step, Move) and isinstance(step.pattern, Exchanged)
    }
    buffers = [program.buffers[number] for number in sources]
    return frozenset(
        each.number
        for each in buffers
        if each.role is not Role.GIVEN
        and each.item * each.tiling.elements(program.mesh) > SMALL * program.devices
    )


def ending(number: int, coming: int) -> Do:
    """What waits for the communication of a step, by which so many bytes come."""

    def end(memory: RankMemory) -> None:
        for started in memory.started.pop(number):
            started.finish()
        memory.received[number] += coming

    return end

"""One device's row of a program: its blocks, and what it receives from whom and sends to whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from eindecomp.layout.boxes import Box, volume
from eindecomp.layout.tiling import Tiling, box_on, group_along
from eindecomp.tra.program.exchange import Exchange, Transfer, exchange, moves
from eindecomp.tra.program.steps import (
    AllGather,
    Compute,
    Free,
    Generate,
    Load,
    Move,
    ReduceScatter,
    Step,
)

if TYPE_CHECKING:
    from eindecomp.layout.cut import Cut
    from eindecomp.layout.mesh import Mesh
    from eindecomp.tra.program.buffers import Buffer


NOTHING = Exchange()


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """A step as one device carries it out."""

    step: Step
    box: Box
    """The block that the device makes, completes or lets go of."""
    reads: tuple[Box | None, ...] = ()
    """For a kernel call the block of each operand, None for one that is not read."""
    exchange: Exchange = NOTHING
    members: tuple[int, ...] = ()
    """For a reduction the devices whose partial results are combined, in this order."""


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """What one device does, step by step."""

    device: int
    steps: tuple[DeviceStep, ...]
    received: int
    """Bytes that others send to the device."""
    sent: int
    """Bytes that the device sends."""

    def __iter__(self) -> Iterator[DeviceStep]:
        return iter(self.steps)


def row_of(mesh: Mesh, buffers: Sequence[Buffer], steps: Sequence[Step], device: int) -> DeviceRow:
    """The row of a device."""
    found = tuple(step_on(mesh, buffers, step, device) for step in steps)
    taken = given = 0
    for own in found:
        item = _item(buffers, own.step)
        taken += item * own.exchange.elements_in
        given += item * own.exchange.elements_out
    return DeviceRow(device, found, taken, given)


def _item(buffers: Sequence[Buffer], step: Step) -> int:
    """The bytes of an element that a step moves."""
    match step:
        case Move() | ReduceScatter():
            return buffers[step.source].item
        case AllGather():
            return buffers[step.buffer].item
        case _:
            return 0


def step_on(mesh: Mesh, buffers: Sequence[Buffer], step: Step, device: int) -> DeviceStep:
    """A step as one device carries it out."""
    match step:
        case Load() | Generate():
            return DeviceStep(step, buffers[step.into].box(mesh, device))
        case Free():
            return DeviceStep(step, buffers[step.buffer].box(mesh, device))
        case Compute():
            reads = tuple(
                None if read is None else box_on(mesh, read.cut, device) for read in step.reads
            )
            return DeviceStep(step, buffers[step.into].box(mesh, device), reads)
        case Move():
            held, wanted = buffers[step.source].tiling, buffers[step.into].tiling
            own = moves(mesh, held, wanted, device)
            return DeviceStep(step, wanted.box(mesh, device), (), own)
        case ReduceScatter():
            home = buffers[step.into].tiling.cut
            box, members, own = _reduction(mesh, home, step.axes, step.split, device)
            return DeviceStep(step, box, (), own, members)
        case AllGather():
            home = buffers[step.buffer].tiling.cut
            own = moves(mesh, Tiling(home, step.axes), Tiling(home), device)
            return DeviceStep(step, box_on(mesh, home, device), (), own)


@lru_cache(maxsize=1 << 10)
def _reduction(
    mesh: Mesh, home: Cut, axes: int, split: int, device: int
) -> tuple[Box, tuple[int, ...], Exchange]:
    """The block that a device reduces, with whom, what they send and what it sends."""
    members = group_along(mesh, axes, device)
    own = Tiling(home, split)
    box = own.box(mesh, device)
    others = [other for other in members if other != device]
    receives = tuple(Transfer(other, box) for other in others) if volume(box) else ()
    blocks = ((other, own.box(mesh, other)) for other in others)
    sends = tuple(Transfer(other, block) for other, block in blocks if volume(block))
    return box, members, exchange(receives, sends)

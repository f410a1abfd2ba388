"""From the program of a plan to its tiles: devices of one memory share what is equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.errors import InputError
from eindecomp.layout.boxes import Box, inside, meet, volume
from eindecomp.tra.program.steps import (
    AllGather,
    Compute,
    Free,
    Generate,
    Load,
    Move,
    ReduceScatter,
)
from eindecomp.tra.tiles.ops import Block, Kind, Share, Tile, TileOp, TileProgram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.tra.program.device_row import DeviceStep
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.steps import Step


def tiles_of(program: Program, memories: Sequence[int] | None = None) -> TileProgram:
    """The tiles of a program whose devices lie in the given memories, by default all in one.

    What several devices of one memory would compute alike is computed once, and a block that lies
    inside a tile of the same memory is read there instead of being moved.
    """
    memories = (0,) * program.devices if memories is None else tuple(memories)
    if len(memories) != program.devices:
        raise InputError(f"{program.devices} devices lie in as many memories, not {len(memories)}")
    making = _Making(program, memories)
    rows = [program.on(device) for device in range(program.devices)]
    for number, step in enumerate(program.steps):
        making.carry_out(number, step, [row.steps[number] for row in rows])
    return making.made()


class _Making:
    """What is known while steps are turned into operations one by one."""

    def __init__(self, program: Program, memories: tuple[int, ...]) -> None:
        self.program, self.memories = program, memories
        self.tiles: list[Tile] = []
        self.ops: list[TileOp] = []
        self.known: dict[object, int] = {}
        """The tile that an equal operation has made."""
        self.held: dict[tuple[int, int], tuple[Block, ...]] = {}
        """The blocks of a buffer that a device has, which do not overlap."""
        self.shares: list[Share] = []

    def carry_out(self, number: int, step: Step, rows: Sequence[DeviceStep]) -> None:
        """Note what all devices do in a step."""
        if isinstance(step, Free):
            return  # tiles live as long as they are read
        found = {
            device: self._on(device, step, own)
            for device, own in enumerate(rows)
            if volume(own.box) or not isinstance(step, ReduceScatter)
        }
        for device, blocks in found.items():  # afterwards: a step reads what was there before it
            into = step.buffer if isinstance(step, AllGather) else step.into
            self.held[into, device] = blocks
        if isinstance(step, Compute | Generate | ReduceScatter):
            tiles = {device: blocks[0].tile for device, blocks in found.items()}
            self.shares += [Share(number, d, tiles.get(d)) for d in range(len(rows))]

    def _on(self, device: int, step: Step, own: DeviceStep) -> tuple[Block, ...]:
        """A device's part of a step: the blocks that it has then."""
        match step:
            case Load():
                return self._make(Kind.LOAD, step.into, device, own.box)
            case Generate():
                return self._make(Kind.FILL, step.into, device, own.box)
            case Compute():
                reads = tuple(
                    None if read is None or box is None else self._read(read.buffer, device, box)
                    for read, box in zip(step.reads, own.reads, strict=True)
                )
                kind = Kind.PARTIAL if step.is_partial else Kind.WHOLE
                return self._make(kind, step.into, device, own.box, reads)
            case ReduceScatter():
                parts = tuple(self._brought(step.source, m, device, own.box) for m in own.members)
                return self._make(Kind.REDUCE, step.into, device, own.box, parts)
            case Move():
                return self._gathered(step.source, step.into, device, own)
            case AllGather():
                return self._gathered(step.buffer, step.buffer, device, own)
            case Free():
                raise AssertionError("nothing is made by letting go")

    def _gathered(self, source: int, into: int, device: int, own: DeviceStep) -> tuple[Block, ...]:
        """All of a box, in one block if a tile of this memory has it, else put together."""
        box, memory = own.box, self.memories[device]
        if not volume(box):
            return self._make(Kind.ASSEMBLE, into, device, box)
        near = [d for d in range(self.program.devices) if self.memories[d] == memory]
        for peer in (device, *near):
            for block in self.held.get((source, peer), ()):
                if inside(box, block.box):
                    return (Block(block.tile, box),)
        pieces = (*own.exchange.kept, *own.exchange.receives)
        blocks = tuple(
            Block(block.tile, part)
            for piece in pieces
            for block in self.held.get((source, piece.peer), ())
            if (part := meet(block.box, piece.box)) is not None
        )
        return self._make(Kind.ASSEMBLE, into, device, box, blocks)

    def _brought(self, buffer: int, peer: int, device: int, box: Box) -> Block:
        """A block of a peer's, in the memory of this device."""
        block = self._read(buffer, peer, box)
        if self.memories[peer] == self.memories[device]:
            return block
        return self._make(Kind.ASSEMBLE, buffer, device, box, (block,))[0]

    def _read(self, buffer: int, device: int, box: Box) -> Block:
        """A block that a device has."""
        if not volume(box):
            return self._make(Kind.ASSEMBLE, buffer, device, box)[0]
        for block in self.held[buffer, device]:
            if inside(box, block.box):
                return Block(block.tile, box)
        raise AssertionError(f"device {device} lacks a block of buffer {buffer}")

    def _make(
        self,
        kind: Kind,
        buffer: int,
        device: int,
        box: Box,
        reads: tuple[Block | None, ...] = (),
    ) -> tuple[Block, ...]:
        """A new tile, or the one that an equal operation has made in this memory."""
        made, memory = self.program.buffers[buffer], self.memories[device]
        key = (kind, made.tensor, made.types, memory, box, reads)
        number = self.known.get(key)
        if number is None:
            number = self.known[key] = len(self.tiles)
            self.tiles.append(Tile(number, made.tensor, box, made.types, memory))
            self.ops.append(TileOp(kind, number, reads, device))
        return (Block(number, box),)

    def made(self) -> TileProgram:
        """All of it."""
        devices = range(self.program.devices)
        mesh = self.program.mesh
        outputs = {
            name: tuple(
                self._read(number, device, self.program.buffers[number].box(mesh, device))
                for device in devices
            )
            for name, number in self.program.outputs.items()
        }
        return TileProgram(
            self.program,
            self.memories,
            tuple(self.tiles),
            tuple(self.ops),
            outputs,
            tuple(self.shares),
        )

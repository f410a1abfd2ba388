"""Tiles in memories and the operations that make them; `tiles_of` finds those of a plan's program.

Devices of one memory share what is equal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from eindecomp.errors import InputError
from eindecomp.graph.ops import Fill, Gather, Input, ScatterAdd
from eindecomp.lang.dtypes import DType
from eindecomp.lang.einsum import EinSum
from eindecomp.layout.boxes import Box, inside, meet, shape_of, show_box, volume
from eindecomp.tra.program import steps
from eindecomp.tra.program.device_row import DeviceStep
from eindecomp.tra.program.program import Program

ALIGNMENT = 512
"""Every window of a memory begins at a multiple of so many bytes."""


def window_bytes(nbytes: int) -> int:
    """The bytes of a window: at least one unit, so that no two begin at one place."""
    return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT


class OpKind(Enum):
    """What an operation does."""

    LOAD = "load"
    """Takes a block of an input."""
    FILL = "fill"
    """Makes a block of a fill from the indices."""
    WHOLE = "compute"
    """Calls the kernel of a vertex."""
    PARTIAL = "compute a part of"
    """Calls the kernel of a vertex for a part of its aggregation."""
    REDUCE = "reduce"
    """Combines partial results, in the order in which it reads them, and finishes the result."""
    ASSEMBLE = "assemble"
    """Puts together blocks that do not overlap."""
    CALL = "call for"
    """Calls a function of an engine's own."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A block of a tensor in one memory; partial results have an array for each type."""

    number: int
    tensor: str
    box: Box
    types: tuple[DType, ...]
    memory: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sides."""
        return shape_of(self.box)

    @property
    def nbytes(self) -> int:
        """The bytes of all its arrays."""
        return volume(self.box) * sum(dtype.itemsize for dtype in self.types)

    def __str__(self) -> str:
        return f"{self.tensor}{show_box(self.box)}"


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a tile that an operation reads: all of it, or a view."""

    tile: int
    box: Box


@dataclass(frozen=True, eq=False)
class TileCall:
    """A function of blocks that an engine has put in the place of several vertices' kernels."""

    key: Hashable
    """Equal for calls that compute the same."""
    makes: tuple[int, ...]
    """The tiles that it makes, for each of which there is an operation that reads the same."""
    compute: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]
    """An array for each of these tiles, from those of the blocks and all run-time scalars."""
    vertices: int = 1
    """How many vertices' kernels it takes the place of."""


@dataclass(frozen=True, slots=True)
class TileOp:
    """Makes one tile from blocks of others."""

    kind: OpKind
    into: int
    reads: tuple[Block | None, ...] = ()
    """In the order of the operands, with None for one whose elements are never read."""
    device: int = 0
    """The first of the devices that it is done for."""
    call: TileCall | None = None
    """What it calls, if that is not the kernel of a vertex."""
    numbers: Box = ()
    """What it has of the labels that only windows have."""

    @property
    def sources(self) -> tuple[int, ...]:
        """The tiles that it reads, each once."""
        return tuple(dict.fromkeys(block.tile for block in self.reads if block is not None))


@dataclass(frozen=True, slots=True)
class Share:
    """A device's part of a step that computes, and the tile in which its result lies."""

    step: int
    device: int
    tile: int | None
    """None where the part is empty."""


@dataclass(frozen=True)
class TileProgram:
    """Operations in an order in which they can be carried out, each tile made once."""

    program: Program
    memories: tuple[int, ...]
    """The memory of each device."""
    tiles: tuple[Tile, ...]
    ops: tuple[TileOp, ...]
    outputs: Mapping[str, tuple[Block, ...]]
    """For each output that is computed every device's block."""
    shares: tuple[Share, ...] = ()
    """What devices compute, in the order of the steps; those of one memory may share a tile."""

    @cached_property
    def kept(self) -> frozenset[int]:
        """The tiles that outputs lie in."""
        return frozenset(block.tile for blocks in self.outputs.values() for block in blocks)

    @cached_property
    def loads(self) -> frozenset[int]:
        """The tiles that are blocks of inputs."""
        return frozenset(op.into for op in self.ops if op.kind is OpKind.LOAD)

    @cached_property
    def readers(self) -> tuple[frozenset[int], ...]:
        """For each tile those that are made from it."""
        readers: list[set[int]] = [set() for _ in self.tiles]
        for op in self.ops:
            for tile in op.sources:
                readers[tile].add(op.into)
        return tuple(map(frozenset, readers))

    def maps(self, op: TileOp) -> bool:
        """Whether an operation computes each element from those with the same indices."""
        vertex = self.program.graph[self.tiles[op.into].tensor].op
        return op.kind is OpKind.WHOLE and isinstance(vertex, EinSum) and vertex.agg is None

    def show(self, op: TileOp) -> str:
        """An operation in words."""
        reads = ", ".join("-" if b is None else str(self.tiles[b.tile]) for b in op.reads)
        return f"{op.kind.value} {self.tiles[op.into]}{f' from {reads}' * bool(reads)}"

    def __str__(self) -> str:
        return "\n".join(map(self.show, self.ops))


@dataclass(frozen=True, slots=True)
class Region:
    """Operations of one memory that are carried out together, and the tiles that cross its edge."""

    number: int
    memory: int
    ops: tuple[TileOp, ...]
    reads: tuple[int, ...]
    """Tiles that were there before."""
    writes: tuple[int, ...]
    """Tiles that are read afterwards or kept."""


@dataclass(frozen=True, slots=True)
class TileLookup:
    """An operation, the block of its indices, and how many rows there are."""

    op: TileOp
    index: Block
    rows: int


def lookups_of(tiled: TileProgram, ops: Iterable[TileOp]) -> tuple[TileLookup, ...]:
    """All lookups among some operations."""
    graph = tiled.program.graph
    lookups: list[TileLookup] = []
    for op in ops:
        vertex = graph[tiled.tiles[op.into].tensor]
        kernel = op.kind in (OpKind.WHOLE, OpKind.PARTIAL)
        if not kernel or not isinstance(vertex.op, Gather | ScatterAdd):
            continue
        table = graph[vertex.inputs[0]] if isinstance(vertex.op, Gather) else vertex
        index = op.reads[1]
        if index is not None:
            lookups.append(TileLookup(op, index, table.shape[vertex.op.axis]))
    return tuple(lookups)


def is_computed(tiled: TileProgram, lookup: TileLookup) -> bool:
    """Whether indices are known only while a program runs: they are no input and no fill."""
    name = tiled.tiles[lookup.index.tile].tensor
    return not isinstance(tiled.program.graph[name].op, Input | Fill)


def tiles_of(program: Program, memories: Sequence[int] | None = None) -> TileProgram:
    """The tiles of a program whose devices lie in the given memories, by default all in one.

    What several devices of one memory would compute alike is computed once, and a block that lies
    inside a tile of the same memory is read there instead of being moved.
    """
    memories = (0,) * program.devices if memories is None else tuple(memories)
    if len(memories) != program.devices:
        raise InputError(f"{program.devices} devices lie in as many memories, not {len(memories)}")
    making = _TileMaker(program, memories)
    rows = [program.on(device) for device in range(program.devices)]
    for number, step in enumerate(program.steps):
        making.carry_out(number, step, [row.steps[number] for row in rows])
    return making.made()


class _TileMaker:
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

    def carry_out(self, number: int, step: steps.Step, rows: Sequence[DeviceStep]) -> None:
        """Note what all devices do in a step."""
        if isinstance(step, steps.Free):
            return  # tiles live as long as they are read
        held = {
            (step.into, device): self._on(device, step, own)
            for device, own in enumerate(rows)
            if volume(own.box) or not isinstance(step, steps.ReduceScatter)
        }
        self.held |= held  # afterwards: a step reads what was there before it
        if isinstance(step, steps.Compute | steps.Generate | steps.ReduceScatter):
            tiles = {device: blocks[0].tile for (_, device), blocks in held.items()}
            self.shares += [Share(number, d, tiles.get(d)) for d in range(len(rows))]

    def _on(self, device: int, step: steps.MakingStep, own: DeviceStep) -> tuple[Block, ...]:
        """A device's part of a step: the blocks that it has then."""
        match step:
            case steps.Load():
                return self._make(OpKind.LOAD, step.into, device, own.box)
            case steps.Generate():
                return self._make(OpKind.FILL, step.into, device, own.box)
            case steps.Compute():
                reads = tuple(
                    None if read is None or box is None else self._read(read.buffer, device, box)
                    for read, box in zip(step.reads, own.reads, strict=True)
                )
                kind = OpKind.PARTIAL if step.is_partial else OpKind.WHOLE
                return self._make(kind, step.into, device, own.box, reads, numbers=own.numbers)
            case steps.ReduceScatter():
                parts: list[Block] = []
                for peer in own.members:
                    part = self._read(step.source, peer, own.box)
                    if self.memories[peer] != self.memories[device]:
                        [part] = self._make(OpKind.ASSEMBLE, step.source, device, own.box, (part,))
                    parts.append(part)
                return self._make(OpKind.REDUCE, step.into, device, own.box, tuple(parts))
            case steps.Move() if own.is_identity:
                return self._make(OpKind.FILL, step.into, device, own.box, of=step.identity)
            case steps.Move() | steps.AllGather():
                return self._gathered(step.source, step.into, device, own)

    def _gathered(self, source: int, into: int, device: int, own: DeviceStep) -> tuple[Block, ...]:
        """All of a box, in one block if a tile of this memory has it, else put together."""
        box, memory = own.box, self.memories[device]
        if not volume(box):
            return self._make(OpKind.ASSEMBLE, into, device, box)
        is_partial = self.program.buffers[source].role is steps.Role.PARTIAL
        near = [d for d in range(self.program.devices) if self.memories[d] == memory]
        near = [] if is_partial else near  # others have other parts
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
        return self._make(OpKind.ASSEMBLE, into, device, box, blocks)

    def _read(self, buffer: int, device: int, box: Box) -> Block:
        """A block that a device has."""
        if not volume(box):
            return self._make(OpKind.ASSEMBLE, buffer, device, box)[0]
        for block in self.held[buffer, device]:
            if inside(box, block.box):
                return Block(block.tile, box)
        raise AssertionError(f"device {device} lacks a block of buffer {buffer}")

    def _make(
        self,
        kind: OpKind,
        buffer: int,
        device: int,
        box: Box,
        reads: tuple[Block | None, ...] = (),
        of: str | None = None,
        numbers: Box = (),
    ) -> tuple[Block, ...]:
        """A new tile, or the one that an equal operation has made in this memory.

        It is `of` the tensor of the buffer, if not of another.
        """
        made, memory = self.program.buffers[buffer], self.memories[device]
        tensor = made.tensor if of is None else of
        key = (kind, tensor, made.types, memory, box, reads, numbers)
        number = self.known.get(key)
        if number is None:
            number = self.known[key] = len(self.tiles)
            self.tiles.append(Tile(number, tensor, box, made.types, memory))
            self.ops.append(TileOp(kind, number, reads, device, numbers=numbers))
        return (Block(number, box),)

    def made(self) -> TileProgram:
        """All of it."""
        mesh = self.program.mesh
        outputs: dict[str, tuple[Block, ...]] = {}
        for name, number in self.program.outputs.items():
            boxes = [self.program.buffers[number].box(mesh, each) for each in range(mesh.devices)]
            outputs[name] = tuple(self._read(number, *own) for own in enumerate(boxes))
        tiles, ops, shares = tuple(self.tiles), tuple(self.ops), tuple(self.shares)
        return TileProgram(self.program, self.memories, tiles, ops, outputs, shares)

"""Tiles in memories, the operations that make them, and regions of operations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from eindecomp.errors import PlanError
from eindecomp.graph.ops import Fill, Gather, Input, ScatterAdd
from eindecomp.lang.einsum import EinSum
from eindecomp.layout.boxes import Box, inside, shape_of, show_box, volume

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from eindecomp.lang.dtypes import DType
    from eindecomp.tra.program.program import Program


ALIGNMENT = 512
"""Every window of a memory begins at a multiple of so many bytes."""


def window_bytes(nbytes: int) -> int:
    """The bytes of a window: at least one unit, so that no two begin at one place."""
    return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT


class Kind(Enum):
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

    kind: Kind
    into: int
    reads: tuple[Block | None, ...] = ()
    """In the order of the operands, with None for one whose elements are never read."""
    device: int = 0
    """The first of the devices that it is done for."""
    call: TileCall | None = None
    """What it calls, if that is not the kernel of a vertex."""

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
        return frozenset(op.into for op in self.ops if op.kind is Kind.LOAD)

    @cached_property
    def readers(self) -> tuple[frozenset[int], ...]:
        """For each tile those that are made from it."""
        found: list[set[int]] = [set() for _ in self.tiles]
        for op in self.ops:
            for tile in op.sources:
                found[tile].add(op.into)
        return tuple(map(frozenset, found))

    def maps(self, op: TileOp) -> bool:
        """Whether an operation computes each element from those with the same indices."""
        vertex = self.program.graph[self.tiles[op.into].tensor].op
        return op.kind is Kind.WHOLE and isinstance(vertex, EinSum) and vertex.agg is None

    def verify(self) -> None:
        """Raise unless each tile is made once, from blocks of tiles that are there by then."""
        made: set[int] = set()
        for op in self.ops:
            blocks = [block for block in op.reads if block is not None]
            outside = [
                b for b in blocks if volume(b.box) and not inside(b.box, self.tiles[b.tile].box)
            ]
            if op.into in made or outside or not made.issuperset(op.sources):
                raise PlanError(f"this cannot be carried out where it stands: {self.show(op)}")
            made.add(op.into)
        if not made >= self.kept:
            raise PlanError(f"nothing makes {self.tiles[min(self.kept - made)]}, an output")

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
class Lookup:
    """An operation, the block of its indices, and how many rows there are."""

    op: TileOp
    index: Block
    rows: int


def lookups_of(tiled: TileProgram, ops: Iterable[TileOp]) -> tuple[Lookup, ...]:
    """All lookups among some operations."""
    graph = tiled.program.graph
    found: list[Lookup] = []
    for op in ops:
        vertex = graph[tiled.tiles[op.into].tensor]
        kernel = op.kind in (Kind.WHOLE, Kind.PARTIAL)
        if not kernel or not isinstance(vertex.op, Gather | ScatterAdd):
            continue
        table = graph[vertex.inputs[0]] if isinstance(vertex.op, Gather) else vertex
        index = op.reads[1]
        if index is not None:
            found.append(Lookup(op, index, table.shape[vertex.op.axis]))
    return tuple(found)


def is_computed(tiled: TileProgram, lookup: Lookup) -> bool:
    """Whether indices are known only while a program runs: they are no input and no fill."""
    name = tiled.tiles[lookup.index.tile].tensor
    return not isinstance(tiled.program.graph[name].op, Input | Fill)

"""Operations that look rows up, or add to rows, by indices that may be out of range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.graph.ops import Fill, Gather, Input, ScatterAdd
from eindecomp.tra.tiles.ops import Block, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eindecomp.tra.tiles.ops import TileOp, TileProgram


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

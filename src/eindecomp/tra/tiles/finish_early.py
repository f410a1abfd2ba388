"""`finish_early`: what only results follow from is computed as soon as it can be.

An optimiser's update reads a gradient, a parameter and its state. Where all updates come after all
gradients, these are held or stored meanwhile; where each follows its gradient, they never are. A
gradient that only an update reads is computed before others are passed on: what is new leaves while
they are.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from eindecomp.tra.tiles.ops import Kind

if TYPE_CHECKING:
    from eindecomp.tra.tiles.ops import TileOp, TileProgram


def finish_early(tiled: TileProgram) -> TileProgram:
    """The same operations, loads first, then each of those that finish outputs as soon as it can.

    What all devices do for one tensor stays together.
    """
    last = finishing(tiled)
    loads = [op for op in tiled.ops if op.kind is Kind.LOAD]
    ordered, done = loads, {op.into for op in loads}
    rows = _rows(tiled)
    waiting = [row for row in rows if all(op.into in last for op in row)]
    for row in [[], *(row for row in rows if row not in waiting)]:
        ordered += row
        done.update(op.into for op in row)
        for other in list(waiting):
            if all(done.issuperset(op.sources) for op in other):
                waiting.remove(other)
                ordered += other
                done.update(op.into for op in other)
    return replace(tiled, ops=tuple(ordered))


def _rows(tiled: TileProgram) -> list[list[TileOp]]:
    """Operations in order, those in a row that make tiles of one tensor together."""
    computed = (op for op in tiled.ops if op.kind is not Kind.LOAD)
    rows = groupby(computed, lambda op: (op.kind, tiled.tiles[op.into].tensor))
    return [list(row) for _, row in rows]


def finishing(tiled: TileProgram) -> set[int]:
    """The tiles from which only outputs are mapped, element by element, and those outputs.

    With a tile that is summed from parts, these are among them.
    """
    mapped = _only_outputs_follow(tiled)
    found = set(mapped)
    for op in reversed(tiled.ops):
        read_by = tiled.readers[op.into]
        own = {t for t in read_by if tiled.tiles[t].tensor == tiled.tiles[op.into].tensor}
        inner = op.kind is not Kind.LOAD and op.into not in tiled.kept and read_by
        if inner and mapped >= read_by - own and found >= own:
            found.add(op.into)
    return found


def _only_outputs_follow(tiled: TileProgram) -> set[int]:
    """The tiles of maps of elements from which nothing is computed but such tiles of outputs."""
    found = {op.into for op in tiled.ops}
    for op in reversed(tiled.ops):
        if not tiled.maps(op) or op.into not in found:
            found -= {op.into, *op.sources}
    return found

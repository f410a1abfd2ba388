"""Fewer, larger tiles of a matrix product where there are more devices than cores.

BLAS copies both matrices of a product into an order of its own, for every tile again. Neighbouring
tiles that one core would compute after each other cost less as one.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.engines.threads.tiled import Tile
from eindecomp.kernels.cores import cores
from eindecomp.kernels.library import library_of
from eindecomp.lang.einsum import EinSum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.engines.threads.tiled import TiledProgram, TiledVertex
    from eindecomp.lang.einsum import Labels
    from eindecomp.layout.boxes import Box, Range

_WIDE = 2000
"""Rows or columns from which a tile gains nothing by more of them; 1000 still lose a hundredth."""


def merge_product_tiles(program: TiledProgram) -> TiledProgram:
    """The same program with neighbouring tiles of products joined, no fewer than cores."""
    return replace(program, vertices=tuple(_merged(program, each) for each in program.vertices))


def _merged(program: TiledProgram, tiled: TiledVertex) -> TiledVertex:
    op = program.graph[tiled.name].op
    # Parts of sums are reduced device by device.
    if tiled.is_partial or len(tiled.tiles) < 2 or not isinstance(op, EinSum):
        return tiled
    if not library_of(np.ndarray).kernel(program.graph, program.graph[tiled.name]).is_product:
        return tiled
    return replace(tiled, tiles=tuple(merge(tiled.tiles, op, cores())))


def merge(tiles: Sequence[Tile], op: EinSum, cores: int) -> Sequence[Tile]:
    """The tiles of a product with rows or columns joined, no fewer than there are cores."""
    for label in op.output:
        # Both inputs have the labels of a batch: joining those saves no copy.
        if not all(label in own for own in op.inputs):
            tiles = _join(tiles, op, label, len(tiles) // cores)
    return tiles


def _join(tiles: Sequence[Tile], op: EinSum, label: str, most: int) -> Sequence[Tile]:
    """Join up to `most` tiles that lie side by side along a label and are otherwise the same."""
    if most < 2:
        return tiles
    rows: dict[object, list[Tile]] = {}
    for tile in tiles:
        boxes = (tile.box, *(box or () for box in tile.reads))
        labels = (op.output, *op.inputs)
        rest = tuple(_without(own, box, label) for own, box in zip(labels, boxes, strict=True))
        rows.setdefault(rest, []).append(tile)
    joined: list[Tile] = []
    for row in rows.values():
        row.sort(key=lambda tile: tile.box[op.output.index(label)])
        low, high = row[0].box[op.output.index(label)]
        count = -(-len(row) // min(most, -(-_WIDE // max(1, high - low))))
        cuts = [k * len(row) // count for k in range(count + 1)]
        joined += [_joined(row[start:stop], op, label) for start, stop in pairwise(cuts)]
    return joined


def _joined(row: Sequence[Tile], op: EinSum, label: str) -> Tile:
    first, last = row[0], row[-1]
    at = op.output.index(label)
    reach = (first.box[at][0], last.box[at][1])
    box = _with(op.output, first.box, label, reach)
    reads = tuple(
        None if own is None else _with(labels, own, label, reach)
        for labels, own in zip(op.inputs, first.reads, strict=True)
    )
    devices = tuple(sorted(device for tile in row for device in tile.devices))
    return Tile(box, reads, devices)


def _without(labels: Labels, box: Box, label: str) -> Box:
    return tuple(own for name, own in zip(labels, box, strict=False) if name != label)


def _with(labels: Labels, box: Box, label: str, reach: Range) -> Box:
    return tuple(reach if name == label else own for name, own in zip(labels, box, strict=True))

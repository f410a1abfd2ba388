"""Fewer, larger tiles of a matrix product where there are more devices than cores.

BLAS copies both matrices of a product into an order of its own, for every tile again. Neighbouring
tiles that one core would compute after each other cost less as one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from eindecomp.tra.tasks import Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.lang.einsum import EinSum, Labels
    from eindecomp.tra.boxes import Box, Range
    from eindecomp.tra.tasks import Compute

_WIDE = 2000
"""Rows or columns from which a tile gains nothing by more of them; 1000 still lose a hundredth."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A kernel call for one or more devices."""

    task: Compute
    devices: tuple[int, ...]


def merge(tasks: Sequence[Compute], op: EinSum, cores: int) -> list[Tile]:
    """The tiles of a product with rows or columns joined, no fewer than there are cores."""
    tiles = [Tile(task, (task.device,)) for task in tasks]
    if tasks[0].into.layout is not Layout.HOME:  # parts of sums are reduced device by device
        return tiles
    for label in op.output:
        # Both inputs have the labels of a batch: joining those saves no copy.
        if not all(label in own for own in op.inputs):
            tiles = _join(tiles, op, label, len(tiles) // cores)
    return tiles


def _join(tiles: list[Tile], op: EinSum, label: str, most: int) -> list[Tile]:
    """Join up to `most` tiles that lie side by side along a label and are otherwise the same."""
    if most < 2:
        return tiles
    rows: dict[object, list[Tile]] = {}
    for tile in tiles:
        task = tile.task
        boxes = (task.box, *(box or () for box in task.reads))
        labels = (op.output, *op.inputs)
        rest = tuple(_without(own, box, label) for own, box in zip(labels, boxes, strict=True))
        rows.setdefault(rest, []).append(tile)
    joined: list[Tile] = []
    for row in rows.values():
        row.sort(key=lambda tile: tile.task.box[op.output.index(label)])
        low, high = row[0].task.box[op.output.index(label)]
        count = -(-len(row) // min(most, -(-_WIDE // max(1, high - low))))
        cuts = [k * len(row) // count for k in range(count + 1)]
        joined += [_joined(row[start:stop], op, label) for start, stop in pairwise(cuts)]
    return joined


def _joined(row: list[Tile], op: EinSum, label: str) -> Tile:
    first, last = row[0].task, row[-1].task
    at = op.output.index(label)
    reach = (first.box[at][0], last.box[at][1])
    box = _with(op.output, first.box, label, reach)
    reads = tuple(
        None if own is None else _with(labels, own, label, reach)
        for labels, own in zip(op.inputs, first.reads, strict=True)
    )
    devices = tuple(sorted(device for tile in row for device in tile.devices))
    return Tile(replace(first, box=box, reads=reads), devices)


def _without(labels: Labels, box: Box, label: str) -> Box:
    return tuple(own for name, own in zip(labels, box, strict=False) if name != label)


def _with(labels: Labels, box: Box, label: str, reach: Range) -> Box:
    return tuple(reach if name == label else own for name, own in zip(labels, box, strict=True))

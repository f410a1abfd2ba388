"""Tensors in the shards of a checkpoint, for readers that want other blocks than were written.

A manifest says which shard holds which box of which tensor. Whatever box of a tensor is asked
for is put together from the blocks that it meets, of which nothing else is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from eindecomp.engines.safetensors_file import NAMES, StoredTensor, map_file, tensors_of
from eindecomp.engines.step_folders import SavedStep
from eindecomp.errors import InputError, quote
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.dtypes import Array, DType
from eindecomp.layout.boxes import Box, meet, shape_of, show_box, volume, within

if TYPE_CHECKING:
    from eindecomp.store.field import Field

    OpenedShard = tuple[Mapping[str, StoredTensor], Array]


def read_sharded(
    step: SavedStep, shards: Field, wanted: Mapping[str, Vertex]
) -> dict[str, ShardedArray]:
    """Tensors of a step, which the boxes that its manifest tells must hold completely and once."""
    blocks: dict[str, list[tuple[int, Box]]] = {name: [] for name in wanted}
    for rank, shard in enumerate(shards.items()):
        for name, sides in shard["boxes"].members():
            if name not in wanted:
                raise sides.wrong("the graph has no such state")
            blocks[name].append((rank, _box(sides, wanted[name].shape)))
    opened: dict[int, OpenedShard] = {}
    found: dict[str, ShardedArray] = {}
    for name, vertex in wanted.items():
        if sum(volume(box) for _, box in blocks[name]) != prod(vertex.shape):
            raise shards.wrong(f"do not hold every element of {name} {list(vertex.shape)} once")
        own = tuple(blocks[name])
        found[name] = ShardedArray(step, name, vertex.shape, vertex.dtype, own, opened)
    return found


def _box(field: Field, shape: tuple[int, ...]) -> Box:
    found: list[tuple[int, int]] = []
    sides = field.items(len(shape), f"a box of {len(shape)} sides")
    for side, size in zip(sides, shape, strict=True):
        begin, end = side.items(2, "where a side begins and ends")
        low = begin.whole(0, size)
        found.append((low, end.whole(low, size)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class ShardedArray:
    """A tensor in files, to be read by its slices: each is put together from what it meets."""

    step: SavedStep
    name: str
    shape: tuple[int, ...]
    dtype: DType
    blocks: tuple[tuple[int, Box], ...]
    """The ranks whose shards hold a block, and which."""
    opened: dict[int, OpenedShard]
    """The shards that any tensor of the step was read from."""

    def __getitem__(self, where: Any) -> Array:
        given: tuple[Any, ...] = (slice(None),) * len(self.shape)
        if where is not ...:
            given = cast("tuple[Any, ...]", where) if isinstance(where, tuple) else (where,)
        plain = all(isinstance(each, slice) and each.step in (None, 1) for each in given)
        if len(given) != len(self.shape) or not plain:
            return self[...][where]
        sides = [each.indices(size) for each, size in zip(given, self.shape, strict=True)]
        box = tuple((low, max(low, high)) for low, high, _ in sides)
        read = np.zeros(shape_of(box), self.dtype)
        for rank, held in self.blocks:
            shared = meet(held, box)
            if shared is not None:
                read[within(shared, box)] = self._block(rank, held)[within(shared, held)]
        return read

    def _block(self, rank: int, box: Box) -> Array:
        """A view of a block in its file, which must be as the manifest has it."""
        path = self.step.shard(rank)
        if rank not in self.opened:
            self.opened[rank] = tensors_of(path)[0], map_file(path)
        tensors, content = self.opened[rank]
        stored = tensors.get(self.name)
        wanted = NAMES[self.dtype.name], shape_of(box)
        if stored is None or (stored.dtype, stored.shape) != wanted:
            what = "nothing" if stored is None else f"{stored.dtype} {quote(stored.shape)}"
            raise InputError(
                f"{path} has {what} for {self.name}{show_box(box)}, not {wanted[0]} {wanted[1]}"
            )
        return stored.view(content)

"""Tensors in blocks: a safetensors file of each rank that wrote some, for readers that want others.

A manifest says which rank's file holds which box of which tensor. Whatever box of a tensor is asked
for is put together from the blocks that it meets, of which nothing else is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from eindecomp.engines.safetensors_file import (
    NAMES,
    TYPES,
    map_file,
    stamp_of,
    tensors_of,
    write_tensors,
)
from eindecomp.errors import InputError, quote
from eindecomp.tra.boxes import meet, shape_of, show_box, volume, within

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from eindecomp.engines.file_stamp import FileStamp
    from eindecomp.engines.safetensors_file import StoredTensor
    from eindecomp.lang.dtypes import DType
    from eindecomp.store.field import Field
    from eindecomp.tra.boxes import Box

    Array = np.ndarray[Any, Any]

_CELLS = 1 << 24  # of the grid of all boxes' ends, more than any layout of thousands of devices has


def file_of(folder: Path, rank: int) -> Path:
    """The file of a rank."""
    return folder / f"rank-{rank:04d}.safetensors"


def write_blocks(
    folder: Path, rank: int, token: str, blocks: Mapping[str, tuple[Box, Array]]
) -> FileStamp | None:
    """Write a rank's blocks and wait until they are on disk; a rank without any has no file."""
    if not blocks:
        return None
    tensors = {name: np.asarray(block, order="C") for name, (_, block) in blocks.items()}
    boxes = {f"box of {name}": show_box(box) for name, (box, _) in blocks.items()}
    path = file_of(folder, rank)
    write_tensors(path, tensors, {"token": token, "rank": str(rank), **boxes})
    return stamp_of(path, tensors)


@dataclass(frozen=True, slots=True)
class ShardedTensor:
    """A tensor, and which rank's file holds which of its blocks."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    blocks: tuple[tuple[int, Box], ...]

    def to_json(self) -> dict[str, Any]:
        """As `read_sharded` reads it."""
        return {"dtype": NAMES[self.dtype.name], "shape": self.shape, "blocks": self.blocks}


def read_sharded(name: str, entry: Field, ranks: int) -> ShardedTensor:
    """Read a tensor's place from a manifest, and check that its blocks are all of it, once."""
    entry.check_names(("dtype", "shape", "blocks"))
    dtype = TYPES[entry["dtype"].one_of(list(TYPES))]
    shape = tuple(each.whole(0) for each in entry["shape"].items())
    blocks: list[tuple[int, Box]] = []
    for block in entry["blocks"].items():
        pair = block.items()
        if len(pair) != 2:
            raise block.wrong("must be a rank and a box")
        sides = pair[1].items()
        if len(sides) != len(shape):
            raise pair[1].wrong(f"must have {len(shape)} sides")
        box = tuple(_side(each, size) for each, size in zip(sides, shape, strict=True))
        blocks.append((pair[0].whole(0, ranks - 1), box))
    if len({rank for rank, _ in blocks}) < len(blocks):
        raise entry["blocks"].wrong("a rank has two blocks of one tensor")
    if not _cover(shape, [box for _, box in blocks]):
        raise entry["blocks"].wrong(f"do not hold every element of {list(shape)} once")
    return ShardedTensor(name, shape, dtype, tuple(blocks))


def _side(field: Field, size: int) -> tuple[int, int]:
    ends = field.items()
    if len(ends) != 2:
        raise field.wrong("must be where a side begins and ends")
    low = ends[0].whole(0, size)
    return low, ends[1].whole(low, size)


def _cover(shape: tuple[int, ...], boxes: list[Box]) -> bool:
    """Whether boxes hold every element of a tensor exactly once.

    >>> _cover((4, 2), [((0, 3), (0, 2)), ((3, 4), (0, 2))]), _cover((4,), [((0, 3),), ((2, 4),)])
    (True, False)
    """
    if sum(map(volume, boxes)) != prod(shape):
        return False
    cuts = [
        np.unique([0, size, *(end for box in boxes for end in box[axis])])
        for axis, size in enumerate(shape)
    ]
    if prod(len(each) - 1 for each in cuts) > _CELLS:
        return False
    cells = np.zeros([len(each) - 1 for each in cuts], np.int32)
    for box in boxes:
        where = [np.searchsorted(each, ends) for each, ends in zip(cuts, box, strict=True)]
        cells[tuple(slice(int(low), int(high)) for low, high in where)] += 1
    return bool((cells == 1).all())


@dataclass(slots=True)
class BlockFiles:
    """The files of a folder, opened as they are asked for."""

    folder: Path
    token: str
    """What all files of one writing have in common."""
    _tensors: dict[int, Mapping[str, StoredTensor]] = field(
        default_factory=dict[int, "Mapping[str, StoredTensor]"]
    )
    _content: dict[int, Array] = field(default_factory=dict[int, "Array"])

    def block(self, rank: int, name: str, box: Box, dtype: DType) -> Array:
        """A view of a block in its file, which must be as the manifest has it."""
        path = file_of(self.folder, rank)
        if rank not in self._tensors:
            tensors, metadata = tensors_of(path)
            if metadata.get("token") != self.token:
                raise InputError(f"{path} was not written with the other files of its folder")
            self._tensors[rank], self._content[rank] = tensors, map_file(path)
        stored = self._tensors[rank].get(name)
        wanted = NAMES[dtype.name], shape_of(box)
        if stored is None or (stored.dtype, stored.shape) != wanted:
            what = "nothing" if stored is None else f"{stored.dtype} {quote(stored.shape)}"
            raise InputError(
                f"{path} has {what} for {name}{show_box(box)}, not {wanted[0]} {wanted[1]}"
            )
        return stored.view(self._content[rank])


def check_file(
    files: BlockFiles, rank: int, tensors: Iterable[ShardedTensor], stamp: FileStamp | None
) -> None:
    """Refuse a rank's file that lacks a block of the tensors, or is not as its stamp has it."""
    if stamp is not None:
        stamp.check(file_of(files.folder, rank))
    for tensor in tensors:
        for holder, box in tensor.blocks:
            if holder == rank:
                files.block(rank, tensor.name, box, tensor.dtype)


@dataclass(frozen=True, slots=True)
class ShardedArray:
    """A tensor in files, to be read by its slices: each is put together from what it meets."""

    tensor: ShardedTensor
    files: BlockFiles

    @property
    def shape(self) -> tuple[int, ...]:
        """How many elements it has along each dimension."""
        return self.tensor.shape

    @property
    def dtype(self) -> DType:
        """The type of its elements."""
        return self.tensor.dtype

    def __getitem__(self, where: Any) -> Array:
        given: tuple[Any, ...] = (slice(None),) * len(self.shape)
        if where is not ...:
            given = cast("tuple[Any, ...]", where) if isinstance(where, tuple) else (where,)
        plain = all(isinstance(each, slice) and each.step in (None, 1) for each in given)
        if len(given) != len(self.shape) or not plain:
            return self[...][where]
        sides = [each.indices(size) for each, size in zip(given, self.shape, strict=True)]
        return self._read(tuple((low, max(low, high)) for low, high, _ in sides))

    def _read(self, box: Box) -> Array:
        found = np.empty(shape_of(box), self.dtype)
        for rank, held in self.tensor.blocks:
            shared = meet(held, box)
            if shared is not None:
                block = self.files.block(rank, self.tensor.name, held, self.dtype)
                found[within(shared, box)] = block[within(shared, held)]
        return found

"""Outputs that devices write to files where they lie: what all engines share.

Whoever runs the job creates the file beside its place, devices write their blocks, and it gets its
name when all have: a file is there when all of it is.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.format import open_memmap, write_array

from eindecomp.errors import InputError, extra, suggest
from eindecomp.lang.dtypes import BFLOAT16
from eindecomp.layout.boxes import shape_of
from eindecomp.planner.costs.byte_sizes import show_bytes

if TYPE_CHECKING:
    from collections.abc import Collection

    from eindecomp.graph.graph import Graph
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.boxes import Box

    Array = np.ndarray[Any, Any]
    GivenOutputs = Mapping[str, str | Path] | str | None
    """Files by output, or as the command line writes them: `Z=z.npy,Y=y.zarr`."""

_KINDS = (".npy", ".zarr")
_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")
_CANNOT = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""What a file system says that cannot set room aside."""
_AT_ONCE = 1 << 20  # bytes


def check_outputs(graph: Graph, given: GivenOutputs) -> dict[str, Path]:
    """The file of each output that is to be written; refuses what could not be.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> graph = parse("input X[i: 4]\\nZ[i] <- X[i] + 1\\noutput Z")
    >>> [path.name for path in check_outputs(graph, "Z=z.npy").values()]
    ['z.npy']
    """
    if isinstance(given, str):
        given = dict(_pair(text) for text in given.split(","))
    names = [vertex.name for vertex in graph.outputs]
    found: dict[str, Path] = {}
    for name, place in (given or {}).items():
        if name not in names:
            raise InputError(f"outputs: there is no output {name!r}{suggest(name, names)}")
        path = Path(place).absolute()
        if path in found.values():
            raise InputError(f"outputs: {name} and another one cannot both be written to {path}")
        _check_place(path, name, graph[name].dtype)
        found[name] = path
    return found


def _pair(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not equals:
        raise InputError(f"outputs are files by name, as Z=z.npy, not {text!r}")
    return name.strip(), path.strip()


def _check_place(path: Path, name: str, dtype: DType) -> None:
    if path.suffix not in _KINDS:
        raise InputError(f"outputs: {name} is written to a .npy or .zarr file, not {path.name}")
    if path.suffix == ".zarr":
        extra("zarr")
        if dtype == BFLOAT16:
            raise InputError(f"outputs: zarr has no bfloat16, which {name} is; use .npy")
    if not path.parent.is_dir():
        raise InputError(f"outputs: there is no folder {path.parent} for {name}")
    # What is there is replaced, and must not be somebody's folder of another kind.
    if path.is_dir() and not any((path / file).exists() for file in _ZARR_FILES):
        raise InputError(f"outputs: {path}, where {name} is to be written, is a folder")


def chunks_for(shape: tuple[int, ...], boxes: Collection[Box]) -> tuple[int, ...]:
    """The sides of the largest tile: as many chunks as possible belong to one tile each."""
    sides = [shape_of(box) for box in boxes] or [shape]
    return tuple(max(1, *(each[axis] for each in sides)) for axis in range(len(shape)))


def can_write_at_once(path: Path, shape: tuple[int, ...], boxes: Collection[Box]) -> bool:
    """Whether tiles can be written at the same time: in `.zarr`, if every chunk is of one tile.

    >>> can_write_at_once(Path("z.zarr"), (5,), [((0, 3),), ((3, 5),)])
    True
    >>> can_write_at_once(Path("z.zarr"), (5,), [((0, 2),), ((2, 5),)])
    False
    """
    if path.suffix == ".npy":
        return True
    return all(
        low % side == 0 and (high % side == 0 or high == size)
        for box in boxes
        for (low, high), side, size in zip(box, chunks_for(shape, boxes), shape, strict=True)
    )


def create_file(
    part: Path, kind: str, shape: tuple[int, ...], dtype: DType, boxes: Collection[Box]
) -> None:
    """Make a file of the kind `.npy` or `.zarr` that devices can write blocks to."""
    if kind == ".zarr":
        extra("zarr").create_array(part, shape=shape, dtype=dtype, chunks=chunks_for(shape, boxes))
        return
    stored = np.dtype("V2") if dtype == BFLOAT16 else dtype
    if 0 in shape or not shape:
        with part.open("wb") as opened:
            write_array(opened, np.zeros(shape, stored), allow_pickle=False)
    else:
        open_memmap(part, "w+", stored, shape)
        _allocate(part)


def _allocate(path: Path) -> None:
    """Set aside the room that a file has by its size; where there is none, remove the file.

    A process that writes to a mapped file where the disk has no room is killed.
    """
    size = path.stat().st_size
    try:
        with path.open("r+b") as opened:
            try:
                os.posix_fallocate(opened.fileno(), 0, size)
            except OSError as error:
                if error.errno not in _CANNOT:
                    raise
                _write_pages(opened.fileno(), size)
    except OSError as error:
        path.unlink(missing_ok=True)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(path.parent).free
        why = f"{error.strerror}: it takes {show_bytes(size)}, {show_bytes(free)} are free"
        raise OSError(error.errno, why, str(path)) from error


def _write_pages(descriptor: int, size: int) -> None:
    """Write what a file holds to its place again, so that its pages are there."""
    for start in range(0, size, _AT_ONCE):
        held = os.pread(descriptor, min(_AT_ONCE, size - start), start)
        os.pwrite(descriptor, held, start)


def write_block(part: Path, kind: str, box: Box, block: Array) -> None:
    """Write a block to a file that was created."""
    where = tuple(slice(low, high) for low, high in box) if box else ...
    if kind == ".zarr":
        extra("zarr").open_array(part, mode="r+")[where] = block
        return
    whole = open_memmap(part, "r+")
    whole[where] = block.view(whole.dtype)
    whole.flush()

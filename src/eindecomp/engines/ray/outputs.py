"""Outputs that workers write to files, each its own tiles."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.ray.blocks import Blocks, fetch
from eindecomp.errors import InputError, suggest
from eindecomp.lang.dtypes import BFLOAT16
from eindecomp.tra.boxes import shape_of

if TYPE_CHECKING:
    from eindecomp.engines.ray.submit import Ref, Submitting
    from eindecomp.engines.tensor import Tensor
    from eindecomp.graph.graph import Graph
    from eindecomp.tra.boxes import Box

    Array = np.ndarray[Any, Any]

_KINDS = (".npy", ".zarr")


def check_outputs(graph: Graph, given: Mapping[str, str | Path] | str | None) -> dict[str, Path]:
    """The file of each output that is to be written; refuses what could not be."""
    if isinstance(given, str):
        given = dict(_pair(text) for text in given.split(","))
    names = [vertex.name for vertex in graph.outputs]
    found: dict[str, Path] = {}
    for name, place in (given or {}).items():
        path = Path(place).absolute()
        if name not in names:
            raise InputError(f"outputs: there is no output {name!r}{suggest(name, names)}")
        if path.suffix not in _KINDS:
            raise InputError(f"outputs: {name} is written to a .npy or .zarr file, not {path.name}")
        if path.suffix == ".zarr" and graph[name].dtype == BFLOAT16:
            raise InputError(f"outputs: zarr has no bfloat16, which {graph[name]} is; use .npy")
        if not path.parent.is_dir():
            raise InputError(f"outputs: there is no folder {path.parent} for {name}")
        found[name] = path
    return found


def _pair(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not equals:
        raise InputError(f"outputs are files by name, as Z=z.npy, not {text!r}")
    return name.strip(), path.strip()


def write_outputs(
    submitting: Submitting, outputs: Mapping[str, Path], tensors: Mapping[str, Tensor]
) -> None:
    """Let workers write outputs; a file is there when all of it is."""
    for name, path in outputs.items():
        part = path.with_name(f".{path.name}.part{os.getpid()}")
        try:
            _write(submitting, tensors[name], part, path.suffix)
            if path.is_dir():
                shutil.rmtree(path)
            part.replace(path)
        finally:
            _remove(part)


def _write(submitting: Submitting, tensor: Tensor, part: Path, kind: str) -> None:
    blocks: Blocks = tensor.held()
    tiling, refs = next(iter(blocks.layouts.items()))
    tiles: dict[Box, tuple[int, Ref]] = {}
    for device, ref in enumerate(refs):
        if ref is not None:
            tiles.setdefault(tiling.box(tensor.mesh, device), (device, ref))
    chunks = _chunks(tensor.shape, list(tiles))
    create = _create_zarr if kind == ".zarr" else _create_npy
    create(part, tensor.shape, tensor.dtype, chunks)
    write = write_zarr if kind == ".zarr" else write_npy
    # Tiles that share a chunk are written one after another, each by its own worker.
    alone = kind == ".npy" or _on_grid(list(tiles), chunks, tensor.shape)
    done: list[Ref] = []
    for box, (device, ref) in tiles.items():
        before = () if alone else done[-1:]
        done += submitting.call(write, device, str(part), box, ref, *before)
    for ref in done:
        fetch(tensor.name, ref)


def _chunks(shape: tuple[int, ...], tiles: list[Box]) -> tuple[int, ...]:
    """The sides of the largest tile."""
    sides = [shape_of(box) for box in tiles] or [shape]
    return tuple(max(1, *(each[axis] for each in sides)) for axis in range(len(shape)))


def _on_grid(tiles: list[Box], chunks: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether every chunk belongs to one tile.

    >>> _on_grid([((0, 3),), ((3, 5),)], (3,), (5,)), _on_grid([((0, 2),), ((2, 5),)], (3,), (5,))
    (True, False)
    """
    return all(
        low % side == 0 and (high % side == 0 or high == size)
        for box in tiles
        for (low, high), side, size in zip(box, chunks, shape, strict=True)
    )


def _create_npy(path: Path, shape: tuple[int, ...], dtype: Any, _chunks: object) -> None:
    stored = np.dtype("V2") if dtype == BFLOAT16 else dtype
    if 0 in shape or not shape:
        with path.open("wb") as opened:
            np.lib.format.write_array(opened, np.zeros(shape, stored), allow_pickle=False)
    else:
        np.lib.format.open_memmap(path, "w+", stored, shape).flush()


def _create_zarr(path: Path, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...]) -> None:
    try:
        import zarr
    except ImportError:
        raise InputError("outputs: writing .zarr files needs zarr: pip install zarr") from None
    zarr.create_array(str(path), shape=shape, dtype=dtype, chunks=chunks)


def write_npy(path: str, box: Box, block: tuple[Array], *_: object) -> tuple[()]:
    """In a worker: write a tile to a .npy file that is there."""
    whole = np.lib.format.open_memmap(path, "r+")
    where = tuple(slice(low, high) for low, high in box) if box else ...
    whole[where] = block[0].view(whole.dtype)
    whole.flush()
    return ()


def write_zarr(path: str, box: Box, block: tuple[Array], *_: object) -> tuple[()]:
    """In a worker: write a tile to a zarr array that is there."""
    import zarr

    whole = zarr.open_array(path, mode="r+")
    whole[tuple(slice(low, high) for low, high in box) if box else ...] = block[0]
    return ()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)

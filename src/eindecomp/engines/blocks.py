"""Cutting arrays into the blocks that devices hold, and putting blocks together again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.tensor import Tensor
from eindecomp.errors import EinDecompError, InputError
from eindecomp.kernels.library import library_of
from eindecomp.layout.boxes import shape_of, volume

if TYPE_CHECKING:
    from eindecomp.layout.boxes import Box
    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.tiling import Tiling
    from eindecomp.tra.program.program import Program

    Array = np.ndarray[Any, Any]
    Blocks = dict[Tiling, list[Array]]
    """For each layout of a tensor every device's block of it."""


def block_of(array: Any, box: Box) -> Array:
    """A copy of a block of an array, of which nothing else is read.

    It lies row by row, however the array does: kernels round alike only where arrays lie alike.

    >>> block_of(np.arange(6).reshape(2, 3), ((0, 2), (1, 2)))
    array([[1],
           [4]])
    """
    if not volume(box):
        return np.empty(shape_of(box), array.dtype)
    try:
        where = tuple(slice(low, high) for low, high in box) if box else ...
        return np.array(array[where], order="C")
    except EinDecompError:
        raise
    except Exception as error:  # as of a file that was closed, or a disk that is gone
        raise InputError(f"{type(error).__name__}: {error}, when an input was read") from error


def as_numpy(block: object) -> Array:
    """A block of any kernel library's kind of array as NumPy's."""
    return library_of(type(block)).to_numpy(block)


def cut_into_blocks(mesh: Mesh, tiling: Tiling, array: Any) -> list[Array]:
    """Every device's own copy of its block of an array."""
    return [block_of(array, tiling.box(mesh, device)) for device in range(mesh.devices)]


def tensor_of_blocks(program: Program, engine: str, name: str, blocks: Blocks) -> Tensor:
    """A tensor of the graph that lies in blocks of NumPy arrays, in at least one layout."""
    vertex, mesh = program.graph[name], program.mesh
    gather = partial(_gather, mesh, vertex.shape, vertex.dtype)
    return Tensor(name, vertex.shape, vertex.dtype, engine, mesh, tuple(blocks), blocks, gather)


def place_in_blocks(program: Program, engine: str, name: str, given: Any) -> Tensor:
    """An input in the layouts that a program wants, from an array or from a tensor of blocks.

    A tensor that lies otherwise goes through one array of the caller's process; an engine whose
    devices can reach each other moves the blocks itself.
    """
    wanted = program.layouts_of(name)
    if isinstance(given, Tensor):
        if given.mesh == program.mesh and set(wanted) <= set(given.tilings):
            return replace(given, name=name)  # it outlives the one that was given
        given = given.numpy()
    blocks = {tiling: cut_into_blocks(program.mesh, tiling, given) for tiling in wanted}
    return tensor_of_blocks(program, engine, name, blocks)


def _gather(mesh: Mesh, shape: tuple[int, ...], dtype: Any, blocks: Blocks) -> Array:
    """One array of all blocks; every element is on some device."""
    tiling, arrays = next(iter(blocks.items()))
    whole = np.empty(shape, dtype)
    for device, array in enumerate(arrays):
        box = tiling.box(mesh, device)
        if volume(box):
            whole[tuple(slice(low, high) for low, high in box)] = array
    return whole

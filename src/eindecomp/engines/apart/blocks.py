"""Blocks of tensors: taken from the caller, moved between devices, gathered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.tra.boxes import meet, shape_of, volume, within
from eindecomp.tra.program.exchange import received

if TYPE_CHECKING:
    from eindecomp.engines.apart.device import Device
    from eindecomp.engines.tensor import Tensor
    from eindecomp.lang.dtypes import DType
    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.tra.boxes import Box
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.tiling import Tiling

    Array = np.ndarray[Any, Any]
    Blocks = dict[Tiling, list[Array]]
    """For each layout of a tensor every device's block of it."""


def block_of(given: Any, box: Box) -> Array:
    """A device's own copy of a block of what the caller has."""
    if not volume(box):
        return np.empty(shape_of(box), given.dtype)
    return np.array(given[tuple(slice(low, high) for low, high in box)] if box else given[...])


def blocks_of(program: Program, tiling: Tiling, array: Any) -> list[Array]:
    """Every device's own copy of its block of what the caller has."""
    boxes = (tiling.box(program.mesh, device) for device in range(program.devices))
    return [block_of(array, box) for box in boxes]


def moved(program: Program, given: Tensor, wanted: Tiling, devices: list[Device]) -> list[Array]:
    """The blocks of a tensor in a wanted tiling, brought from one in which it lies."""
    if given.mesh != program.mesh:
        return blocks_of(program, wanted, given.numpy())
    held: Blocks = given.held()
    return (
        held[wanted] if wanted in held else _rearranged(program, held, wanted, given.dtype, devices)
    )


def _rearranged(
    program: Program, held: Blocks, wanted: Tiling, dtype: DType, devices: list[Device]
) -> list[Array]:
    """A tensor's blocks in another tiling, copied from the devices that hold them."""
    found: list[Array] = []
    for device in devices:
        target = np.empty(shape_of(wanted.box(program.mesh, device.number)), dtype)
        rearrange(program, held, wanted, device, target)
        found.append(target)
    return found


def rearrange(
    program: Program, held: Blocks, wanted: Tiling, device: Device, target: Array
) -> None:
    """Fill a device's block of a tiling from the blocks of another tiling, counting what moves."""
    mesh, number = program.mesh, device.number
    tiling, blocks = next(iter(held.items()))
    box, own = wanted.box(mesh, number), tiling.box(mesh, number)
    mine = meet(box, own) if volume(box) and volume(own) else None
    if mine is not None:
        device.library.copy(target[within(mine, box)], blocks[number][within(mine, own)])
    for piece in received(mesh, tiling, wanted, number):
        source = blocks[piece.peer][within(piece.box, tiling.box(mesh, piece.peer))]
        device.receive([target[within(piece.box, box)]], [source])


def gather(mesh: Mesh, shape: tuple[int, ...], dtype: DType, blocks: Blocks) -> Array:
    """One array of all blocks; every element is on some device."""
    tiling, arrays = next(iter(blocks.items()))
    whole = np.empty(shape, dtype)
    for number, array in enumerate(arrays):
        box = tiling.box(mesh, number)
        whole[tuple(slice(low, high) for low, high in box)] = array
    return whole

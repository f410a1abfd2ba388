"""Blocks of tensors in the memories of torch's devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from eindecomp.engines.tensor import Tensor, block_of
from eindecomp.engines.torch.disk_tier import file_of, mapped_from, note_file
from eindecomp.engines.torch.paged_memory import SMALL, Blocks, HostMemory, Pin, Tenant, pinned
from eindecomp.graph.vertex import Vertex
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.layout.boxes import Box, inside, meet, shape_of, volume, within
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import Tiling
from eindecomp.tra.program.program import Program

Gather = Callable[[Blocks], Any]

NAME = "torch"


class Place(NamedTuple):
    """Where a block is: in which of a tensor's layouts, counted, and on which device."""

    layout: int
    device: int


class Memories:
    """The memories in which a program's devices lie: torch's devices, each with its library."""

    def __init__(
        self,
        program: Program,
        libraries: Sequence[TorchLibrary],
        of: Sequence[int],
        *,
        host: HostMemory | None = None,
    ) -> None:
        """`host` is given if this is the memory of the host, from which a GPU copies."""
        self.program, self.libraries, self.host = program, tuple(libraries), host
        self.of = tuple(of)
        """The memory of each device."""
        self._gathering: dict[str, tuple[Vertex, Gather, Gather]] = {}

    def place(self, tilings: Sequence[Tiling], given: Any) -> Blocks:
        """The blocks of an array in the memories; those of one memory are views of one tensor."""
        mesh = self.program.mesh
        boxes = {tiling: [tiling.box(mesh, d) for d in range(mesh.devices)] for tiling in tilings}
        nearby: list[tuple[Box, torch.Tensor, Pin | None]] = []
        for memory, library in enumerate(self.libraries):
            pairs = (pair for own in boxes.values() for pair in zip(self.of, own, strict=True))
            hull = _hull([box for m, box in pairs if m == memory])
            near, pin = self._brought(library, given, hull), None
            if self.host is not None:
                near, pin = self._on_host(near, self.host)
            nearby.append((hull, near, pin))
        blocks: Blocks = {}
        for tiling, own in boxes.items():
            blocks[tiling] = []
            for memory, box in zip(self.of, own, strict=True):
                hull, near, pin = nearby[memory]
                blocks[tiling].append(_part(near, box, hull))
                setattr(blocks[tiling][-1], "pinned_by", pin)  # noqa: B010 - it lasts as long as a block
        return blocks

    def _on_host(self, near: torch.Tensor, host: HostMemory) -> tuple[torch.Tensor, Pin | None]:
        """An array in memory that a GPU copies from; what is mapped from a file stays there."""
        place = mapped_from(near)
        if place is not None and near.nbytes >= SMALL:
            return note_file(near, place), None
        if place is not None:
            near = near.clone()
        return pinned(near, host) if host.pinned else (near, None)

    def _brought(self, library: TorchLibrary, given: Any, box: Box) -> torch.Tensor:
        """A box of an array in a library's memory; the array itself if it is there already."""
        where = tuple(slice(low, high) for low, high in box)
        if isinstance(given, torch.Tensor):
            return (given[where] if where else given).to(library.device)
        array: Any = given
        is_whole = type(given) is np.ndarray and array.shape == shape_of(box)
        if is_whole or (type(given) is np.ndarray and self.host is not None):
            # Of what is mapped from a file, the rest stays on disk.
            return library.from_numpy(array[where] if where else array)
        return library.from_numpy(block_of(given, box))

    def block(self, held: Blocks, mesh: Mesh, box: Box, memory: int) -> torch.Tensor:
        """A box of a tensor in a memory."""
        return _block_on(self.libraries[memory].device, held, mesh, box)

    def find(self, held: Blocks, mesh: Mesh, box: Box, memory: int) -> Place | None:
        """Where in a memory the block of just this box is; None if there is none."""
        device = self.libraries[memory].device
        for layout, (tiling, arrays) in enumerate(held.items()):
            for number, block in enumerate(arrays):
                if block.device == device and tiling.box(mesh, number) == box:
                    return Place(layout, number)
        return None

    def have(self, held: Blocks) -> bool:
        """Whether every device's blocks are in its own memory."""
        return all(
            block.device == self.libraries[memory].device
            for blocks in held.values()
            for memory, block in zip(self.of, blocks, strict=True)
        )

    def tensor(self, name: str, blocks: Blocks) -> Tensor:
        """A tensor of the graph that lies in blocks."""
        if name not in self._gathering:  # once: brief runs come by the thousand
            vertex, library = self.program.graph[name], self.libraries[0]
            whole = partial(_whole, self.program.mesh, vertex.shape)
            self._gathering[name] = vertex, lambda held: library.to_numpy(whole(held)), whole
        vertex, gather, own = self._gathering[name]
        return Tensor(
            name, vertex.shape, vertex.dtype, NAME, self.program.mesh, tuple(blocks), blocks,
            gather, own,
        )  # fmt: skip


def own_memory(array: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """An array, or a copy of it if it lies in the memory of its source."""
    shared = array.untyped_storage().data_ptr() == source.untyped_storage().data_ptr()
    return array.clone() if shared and array.numel() else array


def _part(array: torch.Tensor, box: Box, held: Box) -> torch.Tensor:
    if box == held:
        return array
    if not volume(box):
        return array.new_empty(shape_of(box))
    return note_file(array[within(box, held)], file_of(array))


def _hull(boxes: Sequence[Box]) -> Box:
    """The least box that has all of these."""
    full = [box for box in boxes if volume(box)]
    if not full:
        return boxes[0]
    sides = zip(*full, strict=True)
    return tuple((min(low for low, _ in side), max(high for _, high in side)) for side in sides)


def _whole(mesh: Mesh, shape: tuple[int, ...], held: Blocks) -> torch.Tensor:
    """One tensor of all blocks, on the device of the first; nothing of it lies in an arena."""
    held = held.outside() if isinstance(held, Tenant) else held
    device = next(iter(held.values()))[0].device
    return _block_on(device, held, mesh, tuple((0, size) for size in shape))


def _block_on(device: torch.device, held: Blocks, mesh: Mesh, box: Box) -> torch.Tensor:
    """A box of a tensor on a device: a view of a block there, or put together of all blocks."""
    for tiling, arrays in held.items():
        for number, block in enumerate(arrays):
            own = tiling.box(mesh, number)
            if block.device == device and inside(box, own):
                return _part(block, box, own)
    tiling, arrays = next(iter(held.items()))
    made = torch.empty(shape_of(box), dtype=arrays[0].dtype, device=device)
    for number, block in enumerate(arrays):
        own = tiling.box(mesh, number)
        shared = meet(own, box) if volume(own) else None
        if shared is not None:
            made[within(shared, box)].copy_(block[within(shared, own)])
    return made

"""`Loads`: the blocks of inputs that a program reads, looked for once where they come again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from eindecomp.engines.tensor import Tensor
from eindecomp.tra.tiles.ops import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import torch

    from eindecomp.engines.torch.blocks import Memories, Place
    from eindecomp.tra.program.tiling import Tiling
    from eindecomp.tra.tiles.ops import TileProgram

    Values = dict[int, tuple[torch.Tensor, ...]]


class Loads:
    """The tiles that a program loads, and where they were found in tensors."""

    def __init__(
        self, tiled: TileProgram, memories: Memories, place: Callable[[str, Any], Tensor]
    ) -> None:
        self.tiled, self.memories, self.place = tiled, memories, place
        loads = [op.into for op in tiled.ops if op.kind is Kind.LOAD]
        self.names = {tile: tiled.tiles[tile].tensor for tile in loads}
        """The input of each tile."""
        self._blocks: dict[int, tuple[ref[Tensor], ref[torch.Tensor]]] = {}
        """The block of each tile, and the tensor that it was found in."""
        self._places: dict[int, tuple[tuple[Tiling, ...], Place | None]] = {}
        """Where in a tensor the block of a tile was found, and the layouts that it had."""

    def find(self, inputs: Mapping[str, Any], tiles: Collection[int] | None = None) -> Values:
        """The blocks of tiles, by default of all, where their readers are."""
        placed: dict[str, Tensor] = {}
        found: Values = {}
        blocks = self._blocks
        for number in self.names if tiles is None else tiles:
            name = self.names[number]
            given = inputs[name]
            known = blocks.get(number)
            # What is given again and again, as weights are, is looked for once.
            if known is not None and known[0]() is given and (block := known[1]()) is not None:
                found[number] = (block,)
                continue
            if not isinstance(given, Tensor):
                if name not in placed:
                    placed[name] = self.place(name, given)
                given = placed[name]
            found[number] = (self._block(number, given),)
        return found

    def _block(self, number: int, given: Tensor) -> torch.Tensor:
        """A tile's block of a tensor; those that lie alike have it in the same place."""
        tile, held, place = self.tiled.tiles[number], given.held(), None
        if given.mesh is self.tiled.program.mesh:
            tilings, place = self._places.get(number, ((), None))
            if tilings is not given.tilings and tilings != given.tilings:
                place = self.memories.find(held, given.mesh, tile.box, tile.memory)
                self._places[number] = given.tilings, place
        block = None if place is None else [*held.values()][place.layout][place.device]
        if block is None or block.device != self.memories.libraries[tile.memory].device:
            block = self.memories.block(held, given.mesh, tile.box, tile.memory)
        self._blocks[number] = ref(given), ref(block)
        return block

"""The inputs of a run: indices are checked, blocks are looked for once where they come again.

Indices out of range are refused before anything runs: a GPU could only stop for good. Small arrays
and numbers reach a GPU all in one copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import accumulate, compress, repeat
from math import prod
from operator import attrgetter, call, is_
from typing import Any, NamedTuple, cast
from weakref import ref

import numpy as np
import torch

from eindecomp.engines.result import naming
from eindecomp.engines.tensor import Remembered, Tensor, block_of
from eindecomp.engines.torch.blocks import Memories, Place
from eindecomp.engines.torch.paged_memory import leave_arena
from eindecomp.graph.ops import Fill
from eindecomp.kernels.cpu.library import check_index as check_array
from eindecomp.kernels.torch.kernel import check_index
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.kernels.torch.tensors import torch_type
from eindecomp.lang.dtypes import DType
from eindecomp.lang.scalar import used_scalars
from eindecomp.layout.boxes import shape_of
from eindecomp.layout.tiling import Tiling
from eindecomp.tra.tiles.ops import TileLookup, TileProgram, is_computed, lookups_of

Values = dict[int, tuple[torch.Tensor, ...]]
Key = int | str

_DATA = attrgetter("data")


class Loads:
    """The tiles that a program loads, and where they were found in tensors."""

    def __init__(
        self,
        tiled: TileProgram,
        memories: Memories,
        place: Callable[[str, Any], Tensor],
        bound: Mapping[str, Tensor] | None = None,
    ) -> None:
        """`bound` are inputs that are the same in all runs, and given in none."""
        self.tiled, self.memories, self.place, self.bound = tiled, memories, place, bound or {}
        self._places: dict[int, tuple[tuple[Tiling, ...], Place | None]] = {}
        """Where in a tensor each block was found, and the layouts that it had."""
        names = {tile: tiled.tiles[tile].tensor for tile in sorted(tiled.loads)}
        self.fixed: Values = {
            tile: (self._block_in(tile, self.bound[name]),)
            for tile, name in names.items()
            if name in self.bound
        }
        """The blocks of what is bound."""
        self.names = {tile: name for tile, name in names.items() if name not in self.bound}
        """The input of each other tile."""
        self._tiles, self._known = [*self.names], Remembered(len(self.names))
        """The tiles, and the tensors in which their blocks were found."""
        self._blocks: list[Callable[[], torch.Tensor | None]] = [lambda: None] * len(self.names)
        self._expected: dict[str, Callable[[], Tensor | None]] = {}

    def find(
        self,
        inputs: Mapping[str, Any],
        tiles: Collection[int] | None = None,
        staged: Collection[int] = (),
    ) -> Values:
        """The blocks of tiles, by default of all, where their readers are.

        Bound inputs are left out, and so are `staged` tiles for which small arrays are given.
        """
        placed: dict[str, Tensor] = {}
        left_out: list[int] = []
        given = [inputs[name] for name in self.names.values()]
        # What is given again and again, as weights are, is looked for once.
        blocks = [*map(call, self._blocks)]
        gone = compress(range(len(blocks)), map(is_, blocks, repeat(None)))
        for place in {*self._known.changed(given), *gone}:
            tile, tensor = self._tiles[place], given[place]
            if tiles is not None and tile not in tiles:
                continue
            if tile in staged and self.is_small(tile, tensor):
                left_out.append(tile)
                continue
            if not isinstance(tensor, Tensor):
                name = self.names[tile]
                if name not in placed:
                    placed[name] = self.place(name, tensor)
                tensor = placed[name]
            blocks[place] = self._block(place, tensor)
        values = cast("Values", dict(zip(self._tiles, zip(blocks), strict=True)))
        for tile in left_out:
            del values[tile]
        return values if tiles is None else {tile: values[tile] for tile in tiles}

    def small(self, inputs: Mapping[str, Any]) -> dict[int, Any]:
        """What was given for tiles as small arrays of the host, each the whole of its tile."""
        given = ((tile, inputs[name]) for tile, name in self.names.items())
        return {tile: array for tile, array in given if self.is_small(tile, array)}

    def is_small(self, tile: int, given: Any) -> bool:
        """Whether a small array of the host is given for a tile, all of it."""
        is_few = type(given) is np.ndarray and given.nbytes <= _SMALL
        return is_few and given.shape == self.tiled.tiles[tile].shape

    def new(self, inputs: Mapping[str, Any]) -> list[Any]:
        """What was not given in the last run."""
        given = [inputs[name] for name in self.names.values()]
        return [given[place] for place in self._known.changed(given)]

    def expect(self, tensors: Mapping[str, Tensor]) -> None:
        """Look for blocks in what the next run will likely be given for inputs."""
        self._expected = {name: ref(tensor) for name, tensor in tensors.items()}
        for place, name in enumerate(self.names.values()):
            if name in tensors:
                self._block(place, tensors[name])

    def expects(self, given: Mapping[str, Any]) -> bool:
        """Whether just these tensors were expected for these inputs, and all are still there."""
        tensors = [*map(given.get, self._expected)]
        return (
            len(given) == len(tensors)
            and all(map(is_, tensors, map(call, self._expected.values())))
            and None not in map(_DATA, tensors)
        )

    def _block(self, load: int, given: Tensor) -> torch.Tensor:
        """A tile's block of a tensor, which is remembered."""
        block = self._block_in(self._tiles[load], given)
        self._known.note(load, given)
        self._blocks[load] = ref(block)
        return block

    def _block_in(self, number: int, given: Tensor) -> torch.Tensor:
        """A tile's block of a tensor; those that lie alike have it in the same place."""
        if self.memories.host is None:  # here are the devices themselves: no arena is ours
            leave_arena(given)
        tile, held, place = self.tiled.tiles[number], given.held(), None
        if given.mesh is self.tiled.program.mesh:
            tilings, place = self._places.get(number, ((), None))
            if tilings is not given.tilings and tilings != given.tilings:
                place = self.memories.find(held, given.mesh, tile.box, tile.memory)
                self._places[number] = given.tilings, place
        block = None if place is None else [*held.values()][place.layout][place.device]
        if block is None or block.device != self.memories.libraries[tile.memory].device:
            block = self.memories.block(held, given.mesh, tile.box, tile.memory)
        return block


_ALIGNED = 64
_SMALL = 1 << 16
"""The bytes up to which an array is written to pinned memory first."""


class Slot(NamedTuple):
    """The room of an array that lies side by side with others: its shape and type."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def nbytes(self) -> int:
        """What it takes."""
        return prod(self.shape) * self.dtype.itemsize


class Staged:
    """Arrays side by side in pinned memory of the host, and in the same order on a GPU."""

    def __init__(self, slots: Mapping[Key, Slot], device: torch.device) -> None:
        sizes = [-(-slot.nbytes // _ALIGNED) * _ALIGNED for slot in slots.values()]
        *starts, total = accumulate(sizes, initial=0)
        self.device, on_gpu = device, device.type == "cuda"
        self._host = torch.empty(total, dtype=torch.uint8, pin_memory=on_gpu)
        self._near = torch.empty(total, dtype=torch.uint8, device=device)
        bytes_of: Any = self._host.numpy()
        self._written: dict[Key, Any] = {}
        self.near: dict[Key, torch.Tensor] = {}
        """The arrays on the GPU."""
        for (key, slot), start in zip(slots.items(), starts, strict=True):
            end = start + slot.nbytes
            self._written[key] = bytes_of[start:end].view(slot.dtype).reshape(slot.shape)
            self.near[key] = self._near[start:end].view(torch_type(slot.dtype)).view(slot.shape)

    def write(self, given: Iterable[tuple[Key, Any]]) -> None:
        """Write arrays to the host's memory, while no copy to the GPU is under way."""
        for key, array in given:
            self._written[key][...] = array

    def send(self) -> None:
        """Begin to copy all of it to the GPU."""
        self._near.copy_(self._host, non_blocking=True)


class IndexChecks:
    """The lookups of a program whose indices are inputs or fills.

    Computed indices are checked by the region that looks rows up.
    """

    def __init__(self, tiled: TileProgram, memories: Memories) -> None:
        self._tiled, self._memories = tiled, memories
        every = lookups_of(tiled, tiled.ops)
        given = [lookup for lookup in every if not is_computed(tiled, lookup)]
        self._unchecked = given
        """Those that are left to check in the next run."""
        pairs = ((lookup, self._op(lookup)) for lookup in given)
        self._varying = [
            each for each, op in pairs if not isinstance(op, Fill) or used_scalars(op.value)
        ]
        """Those that are not the same in every run: filled ones are, without scalars."""

    def check(self, inputs: Mapping[str, Any], scalars: Mapping[str, Any]) -> None:
        """Raise an error that names the tile for which an index is out of range."""
        for lookup in self._unchecked:
            tile = self._tiled.tiles[lookup.op.into]
            with naming(self._tiled.program.graph[tile.tensor], tile.box, lookup.op.device):
                index = self._indices(lookup, inputs, scalars)
                if isinstance(index, torch.Tensor):
                    check_index(index, lookup.rows)
                else:  # NumPy looks at a few indices sooner, which each token decoded waits for
                    check_array(index, lookup.rows)
        self._unchecked = self._varying

    def _op(self, lookup: TileLookup) -> object:
        return self._tiled.program.graph[self._tiled.tiles[lookup.index.tile].tensor].op

    def _indices(
        self, lookup: TileLookup, inputs: Mapping[str, Any], scalars: Mapping[str, Any]
    ) -> Any:
        op, box = self._op(lookup), lookup.index.box
        if isinstance(op, Fill):
            return TorchLibrary("cpu").filled(op, box, scalars, self._tiled.program.graph.scalars)
        given = inputs[self._tiled.tiles[lookup.index.tile].tensor]
        if isinstance(given, Tensor):
            return self._memories.block(given.held(), given.mesh, box, 0)
        if isinstance(given, torch.Tensor):
            return given[tuple(slice(low, high) for low, high in box)]
        is_whole = type(given) is np.ndarray and given.shape == shape_of(box)
        return given if is_whole else block_of(given, box)


def has_filled_indices(tiled: TileProgram) -> bool:
    """Whether some lookup takes its indices from a fill."""
    indices = (tiled.tiles[lookup.index.tile] for lookup in lookups_of(tiled, tiled.ops))
    return any(isinstance(tiled.program.graph[tile.tensor].op, Fill) for tile in indices)

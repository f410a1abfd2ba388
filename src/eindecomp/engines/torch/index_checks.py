"""Refusing indices out of range before anything runs: a GPU could only stop for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from eindecomp.engines.result import naming
from eindecomp.engines.tensor import Tensor, block_of
from eindecomp.graph.ops import Fill
from eindecomp.kernels.cpu.library import check_index as check_array
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.kernels.torch.moves import check_index
from eindecomp.lang.scalar import used_scalars
from eindecomp.layout.boxes import within
from eindecomp.tra.tiles.ops import Lookup, is_computed, lookups_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.engines.torch.blocks import Memories
    from eindecomp.layout.boxes import Box
    from eindecomp.tra.tiles.ops import TileProgram


class IndexChecks:
    """The lookups of a program whose indices are inputs or fills.

    Computed indices are checked by the region that looks rows up.
    """

    def __init__(self, tiled: TileProgram, memories: Memories) -> None:
        self._tiled, self._memories = tiled, memories
        found = lookups_of(tiled, tiled.ops)
        given = [lookup for lookup in found if not is_computed(tiled, lookup)]
        self._constant = [*filter(self._is_constant, given)]
        """Those that are the same in every run: they are checked in the first."""
        self._varying = [lookup for lookup in given if not self._is_constant(lookup)]

    def check(self, inputs: Mapping[str, Any], scalars: Mapping[str, Any]) -> None:
        """Raise an error that names the tile for which an index is out of range."""
        for lookup in [*self._constant, *self._varying]:
            tile = self._tiled.tiles[lookup.op.into]
            with naming(self._tiled.program.graph[tile.tensor], tile.box, lookup.op.device):
                index = self._indices(lookup, inputs, scalars)
                if isinstance(index, torch.Tensor):
                    check_index(index, lookup.rows)
                else:  # NumPy looks at a few indices sooner, which each token decoded waits for
                    check_array(index, lookup.rows)
        self._constant = []

    def _is_constant(self, lookup: Lookup) -> bool:
        """Whether indices are filled, and depend on no scalar of a run."""
        op = self._op(lookup)
        return isinstance(op, Fill) and not used_scalars(op.value)

    def _op(self, lookup: Lookup) -> object:
        return self._tiled.program.graph[self._tiled.tiles[lookup.index.tile].tensor].op

    def _indices(
        self, lookup: Lookup, inputs: Mapping[str, Any], scalars: Mapping[str, Any]
    ) -> Any:
        op, box = self._op(lookup), lookup.index.box
        if isinstance(op, Fill):
            return TorchLibrary("cpu").filled(op, box, scalars, self._tiled.program.graph.scalars)
        given = inputs[self._tiled.tiles[lookup.index.tile].tensor]
        if isinstance(given, Tensor):
            return self._memories.block(given.held(), given.mesh, box, 0)
        if isinstance(given, torch.Tensor):
            return given[within(box, _whole(given))]
        whole = type(given) is np.ndarray and box == _whole(given)
        return given if whole else block_of(given, box)


def has_filled_indices(tiled: TileProgram) -> bool:
    """Whether some lookup takes its indices from a fill."""
    found = (tiled.tiles[lookup.index.tile] for lookup in lookups_of(tiled, tiled.ops))
    return any(isinstance(tiled.program.graph[tile.tensor].op, Fill) for tile in found)


def _whole(array: Any) -> Box:
    return tuple((0, size) for size in array.shape)

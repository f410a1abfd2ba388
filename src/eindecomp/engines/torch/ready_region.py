"""Regions made ready: each as a function that is compiled when it is first called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from eindecomp.engines.torch.compile_region import Call, carry_out, compiled
from eindecomp.engines.torch.region_code import RegionCode
from eindecomp.kernels.torch.dtypes import torch_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.engines.torch.compile_region import Function
    from eindecomp.kernels.torch.library import TorchLibrary
    from eindecomp.tra.tiles.ops import TileProgram
    from eindecomp.tra.tiles.regions import Region

    Tensor = torch.Tensor

_FUNCTIONS: dict[object, Function] = {}
"""Compiled regions of this process, by what they compute and how their tensors lie."""


class ReadyRegions:
    """The regions of a program in order, each with its code; equal ones share a function."""

    def __init__(
        self,
        tiled: TileProgram,
        regions: Sequence[Region],
        libraries: Sequence[TorchLibrary],
        fuse: bool,
    ) -> None:
        self.tiled, self.regions, self.libraries, self.fuse = tiled, regions, libraries, fuse
        self.codes = [RegionCode(tiled, each, libraries[each.memory]) for each in regions]
        known: dict[object, int] = {}
        self.kinds = [known.setdefault(code.key, len(known)) for code in self.codes]
        """A small number for each region, equal where they compute the same."""

    def scalars(self, given: Mapping[str, Any]) -> list[list[Tensor]]:
        """The run-time scalars in every memory."""
        types = self.tiled.program.graph.scalars
        return [
            [
                torch.tensor(x, dtype=torch_type(types[name]), device=library.device)
                for name, x in given.items()
            ]
            for library in self.libraries
        ]

    @property
    def waits(self) -> bool:
        """Whether a run waits for the devices in between, to check indices that it computed."""
        return any(code.lookups for code in self.codes)

    def synchronize(self) -> None:
        """Wait until all that was begun is done."""
        for library in self.libraries:
            if library.device.type == "cuda":
                torch.cuda.synchronize(library.device)

    def call(
        self,
        number: int,
        arrays: Sequence[Tensor],
        scalars: Sequence[Tensor],
        into: Sequence[Tensor] = (),
    ) -> Sequence[Tensor]:
        """Carry out a region; what it makes goes to the tensors of `into`, or is new."""
        code = self.codes[number]
        code.check_indices(arrays)
        own = Call(arrays, scalars, code.joined(arrays), into)
        if not self.fuse:
            return carry_out(code, own)
        key = code.key, own.layout
        if key not in _FUNCTIONS:
            _FUNCTIONS[key] = compiled(code, own)
        return _FUNCTIONS[key](own)

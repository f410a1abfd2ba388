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
        return self.bound(number, arrays, into)(scalars)

    def bound(
        self, number: int, arrays: Sequence[Tensor], into: Sequence[Tensor] = ()
    ) -> BoundRegion:
        """A region that is always carried out with the same tensors."""
        return BoundRegion(self.codes[number], arrays, into, self.fuse)


class BoundRegion:
    """A region with the tensors that it reads and those that it writes to."""

    def __init__(
        self, code: RegionCode, arrays: Sequence[Tensor], into: Sequence[Tensor], fuse: bool
    ) -> None:
        self._code, self._arrays, self._into, self._fuse = code, arrays, into, fuse
        self._joined = code.joined(arrays)
        self._function: Function | None = None

    def __call__(self, scalars: Sequence[Tensor]) -> Sequence[Tensor]:
        """Carry it out."""
        self._code.check_indices(self._arrays)
        call = Call(self._arrays, scalars, self._joined, self._into)
        if not self._fuse:
            return carry_out(self._code, call)
        if self._function is None:
            key = self._code.key, call.layout
            if key not in _FUNCTIONS:
                _FUNCTIONS[key] = compiled(self._code, call)
            self._function = _FUNCTIONS[key]
        return self._function(call)

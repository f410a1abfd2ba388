"""Running regions with all tiles in the devices' own memory."""

from __future__ import annotations

from contextlib import nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Any

from eindecomp.engines.torch.captured import Captures
from eindecomp.engines.torch.region_code import arrays_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import torch

    from eindecomp.engines.torch.heard import Heard
    from eindecomp.engines.torch.ready_region import ReadyRegions

    Values = dict[int, tuple[torch.Tensor, ...]]


class Resident:
    """Regions one after another; a tile goes when its last reader has begun."""

    def __init__(
        self, ready: ReadyRegions, capture: bool, fixed: Collection[int] = frozenset()
    ) -> None:
        """`fixed` are the tiles that are the same in all runs."""
        self.ready = ready
        last = {tile: each.number for each in ready.regions for tile in each.reads}
        self._dropped: list[list[int]] = [[] for _ in ready.regions]
        for tile, number in last.items():
            if tile not in ready.tiled.kept:
                self._dropped[number].append(tile)
        self.captures = Captures(self, fixed) if capture and not ready.waits else None
        self._runs = 0

    def run(self, values: Values, scalars: Mapping[str, Any], heard: Heard | None = None) -> Values:
        """The tiles that are kept, from those that were loaded; the device may still be busy.

        `heard` tells of every region.
        """
        if self.captures is None or heard is not None:
            return self.carry_out(values, self.ready.scalars(scalars), heard)
        made = self.captures.run(values, scalars)
        if made is not None:
            return made
        start = perf_counter()
        made = self.carry_out(values, self.ready.scalars(scalars))
        launched = perf_counter() - start
        self.ready.synchronize()
        self._runs += 1
        if self._runs > 1:  # the first one compiles
            self.captures.launched(launched, perf_counter() - start)
        return made

    def carry_out(
        self,
        values: Values,
        scalars: Sequence[Sequence[torch.Tensor]],
        heard: Heard | None = None,
    ) -> Values:
        """Begin all regions: `values` are what was loaded, and then what is kept."""
        for number, region in enumerate(self.ready.regions):
            arrays = arrays_of(values, region.reads)
            with nullcontext() if heard is None else heard.region(number):
                made = iter(self.ready.call(number, arrays, scalars[region.memory]))
            del arrays  # which else would keep what is dropped
            for tile in region.writes:
                values[tile] = tuple(next(made) for _ in self.ready.tiled.tiles[tile].types)
            for tile in self._dropped[number]:
                del values[tile]
        return values

"""Running regions with all tiles in the devices' own memory."""

from __future__ import annotations

from contextlib import nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Any

from eindecomp.engines.torch.blocks import own_memory
from eindecomp.engines.torch.captured import Captures, Loaded
from eindecomp.engines.torch.region_code import arrays_of
from eindecomp.engines.torch.windows import renewed_tiles
from eindecomp.tra.tiles.memory import possible_views

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import torch

    from eindecomp.engines.torch.captured import Going
    from eindecomp.engines.torch.loads import Loads
    from eindecomp.engines.torch.ready_region import Heard, ReadyRegions

    Values = dict[int, tuple[torch.Tensor, ...]]


class Resident:
    """Regions one after another; a tile goes when its last reader has begun."""

    def __init__(
        self, ready: ReadyRegions, loads: Loads, tie: Mapping[str, str], capture: bool
    ) -> None:
        self.ready, self.loads = ready, loads
        last = {tile: each.number for each in ready.regions for tile in each.reads}
        self._dropped: list[list[int]] = [[] for _ in ready.regions]
        for tile, number in last.items():
            if tile not in ready.tiled.kept:
                self._dropped[number].append(tile)
        self._views = possible_views(ready.tiled)
        self.renewed = renewed_tiles(ready.tiled, tie)
        """By tied input what each of its tiles is in the next run."""
        self.captures = Captures(self) if capture and not ready.waits else None
        self.going: Going | None = None
        """The latest run, if it was only begun."""
        self._goes_on = False
        """Whether the latest run was captured, and left its state where the next one reads it."""
        self._runs = 0

    def run(
        self,
        inputs: Mapping[str, Any],
        scalars: Mapping[str, Any],
        donated: Collection[str],
        heard: Heard | None = None,
    ) -> Values:
        """The tiles that are kept, none of them in the memory of an input.

        The device may still be busy. `heard` tells of every region.
        """
        self._goes_on = False
        captures = self.captures if heard is None else None
        staged = () if captures is None else captures.staged
        values = self.loads.find(inputs, staged=staged)
        known = {**self.loads.fixed, **values} if self._views else {}
        borrowed = {tile: known[load][0] for tile, load in self._views.items() if load in known}
        loaded = Loaded(values, inputs, scalars, donated)
        self.going = None
        made = None
        if captures is not None:
            made = captures.run(loaded)
            self.going = captures.going
            self._goes_on = made is not None and captures.goes_on and not self._views
        for name in donated:  # from now on only `values` has them, up to their last reader
            inputs[name].release()
        if made is None:
            made = self._measured(loaded) if heard is None else self._begun(loaded, heard)
        for tile, source in borrowed.items():
            made[tile] = (own_memory(made[tile][0], source),)
        return made

    def goes_on(self, state: Mapping[str, Any]) -> bool:
        """Whether the next run can begin at once if it is given up this: what the latest made."""
        return self._goes_on and self.loads.expects(state)

    def go_on(
        self, inputs: Mapping[str, Any], scalars: Mapping[str, Any], state: Mapping[str, Any]
    ) -> Values | None:
        """The next run on that and on small arrays; None, and nothing done, if these are not."""
        loaded = Loaded({}, inputs, scalars, state)
        made = None if self.captures is None else self.captures.go_on(loaded)
        if self.captures is None or made is None:
            return None
        self.going = self.captures.going
        for tensor in state.values():
            tensor.release()
        return made

    def _measured(self, loaded: Loaded) -> Values:
        """A usual run; how long it takes to begin says whether capturing pays."""
        if self.captures is None:
            return self._begun(loaded)
        start = perf_counter()
        made = self._begun(loaded)
        launched = perf_counter() - start
        self.ready.synchronize()
        self._runs += 1
        if self._runs > 1:  # the first one compiles
            self.captures.launched(launched, perf_counter() - start)
        return made

    def _begun(self, loaded: Loaded, heard: Heard | None = None) -> Values:
        return self.carry_out(loaded.values, self.ready.scalars(loaded.scalars), heard)

    def carry_out(
        self,
        values: Values,
        scalars: Sequence[Sequence[torch.Tensor]],
        heard: Heard | None = None,
    ) -> Values:
        """Begin all regions: `values` are what was loaded, and then what is kept."""
        values.update(self.loads.fixed)
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

"""Running regions with all tiles in the devices' own memory."""

from __future__ import annotations

from functools import cached_property, partial
from threading import RLock
from time import perf_counter
from typing import TYPE_CHECKING, Any

from eindecomp.engines.torch.blocks import own_memory
from eindecomp.engines.torch.captured import Captures, InOrder, Loaded
from eindecomp.tra.tiles.memory import most_held, possible_views

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractContextManager

    import torch

    from eindecomp.engines.tensor import Tensor
    from eindecomp.engines.torch.blocks import Blocks
    from eindecomp.engines.torch.captured import Going
    from eindecomp.engines.torch.loads import Loads
    from eindecomp.engines.torch.ready_region import Heard, ReadyRegions

    Values = dict[int, tuple[torch.Tensor, ...]]


class Resident:
    """Regions one after another, or all at once where they were captured.

    `Paging` has the same methods: `TorchProgram` runs either.
    """

    schedule = None

    def __init__(
        self, ready: ReadyRegions, loads: Loads, tie: Mapping[str, str], capture: bool
    ) -> None:
        self.ready, self.loads, self.tie, self._capture = ready, loads, tie, capture
        self._order = InOrder(ready, loads, tie)
        self._views = possible_views(ready.tiled)
        self.captures = Captures(self._order) if capture and not ready.waits else None
        self.going: Going | None = None
        """The latest run, if it was only begun."""
        self._goes_on = False
        """Whether the latest run was captured, and left its state where the next one reads it."""
        self._runs = 0
        self._alone = RLock()  # nothing else may be launched while a run is captured

    def bound(self, loads: Loads) -> Resident:
        """The same regions, with other loads; neither runs while the other does."""
        bound = Resident(self.ready, loads, self.tie, self._capture)
        bound._alone = self._alone
        return bound

    def turn(self, inputs: Mapping[str, Any]) -> AbstractContextManager[Any]:
        """Whoever is inside runs alone."""
        del inputs
        return self._alone

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
            made = self._in_order(loaded, heard)
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

    def _in_order(self, loaded: Loaded, heard: Heard | None) -> Values:
        """A usual run; how long it takes to begin says whether capturing pays."""
        start = perf_counter()
        scalars = self.ready.scalars(loaded.scalars)
        made = self._order.carry_out(loaded.values, scalars, heard)
        launched = perf_counter() - start
        if self.captures is not None and heard is None:
            self.ready.synchronize()
            self._runs += 1
            if self._runs > 1:  # the first one compiles
                self.captures.launched(launched, perf_counter() - start)
        return made

    def housed(self, name: str, blocks: Blocks) -> Blocks:
        """The blocks of a result, in memory of their own."""
        del name
        return blocks

    def ended(self, made: Mapping[str, Tensor], start: float) -> Callable[[], float] | None:
        """Expect results as the next run's inputs; how long this one took, if it still goes on.

        If it does not, the devices have ended.
        """
        self.loads.expect({name: made[new] for name, new in self.tie.items() if new in made})
        if self.going is not None:
            return partial(self.going.seconds, start)
        self.ready.synchronize()  # only now: the device needs none of this
        return None

    @cached_property
    def held(self) -> int:
        """The most bytes that tiles take at once."""
        return most_held(self.ready.tiled, self.ready.regions).bytes

    def close(self) -> None:
        """Nothing outlives a run."""

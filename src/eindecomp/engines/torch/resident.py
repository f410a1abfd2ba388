"""Running regions with all tiles in the devices' own memory: in order, or all at once.

Where launching takes long, a run is captured as a CUDA graph with the arrays that it reads, and
launched as a whole. Arrays that were the same in the run before are taken to stay; small ones of
the host are part of what is captured; others are copied to where the captured run reads them. What
is given up and renewed is left there for the next run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from operator import call, is_
from threading import RLock
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import torch

from eindecomp.engines.tensor import Tensor as EngineTensor
from eindecomp.engines.torch.blocks import own_memory
from eindecomp.engines.torch.loads import Loads, Slot, Staged
from eindecomp.engines.torch.ready_region import Heard, ReadyRegions
from eindecomp.engines.torch.replay import WORTH
from eindecomp.engines.torch.windows import renewed_tiles
from eindecomp.kernels.torch.decoding import steady
from eindecomp.tra.tiles.memory import dropped_after, most_held, possible_views

if TYPE_CHECKING:
    from eindecomp.engines.torch.paged_memory import Blocks

    Tensor = torch.Tensor
    Given = Mapping[str, Any]
    Values = dict[int, tuple[Tensor, ...]]


class Loaded(NamedTuple):
    """What a run is given."""

    values: Values
    """The tiles on the device, except bound and staged ones."""
    inputs: Given
    scalars: Given
    donated: Collection[str]


class Resident:
    """Decides from run to run whether to capture, and replays what was captured.

    `Paging` has the same methods: `TorchProgram` runs either.
    """

    schedule = None

    def __init__(
        self, ready: ReadyRegions, loads: Loads, tie: Mapping[str, str], capture: bool
    ) -> None:
        self.ready, self.loads, self.tie = ready, loads, tie
        self._dropped = dropped_after(ready.tiled, ready.regions)
        self._views = possible_views(ready.tiled)
        self.renewed = renewed_tiles(ready.tiled, tie)
        """For each tied input, the tile that becomes each of its tiles in the next run."""
        self._may_capture = capture and not ready.waits
        self.capture: Capture | None = None
        self._before: Mapping[int, int] = {}
        """The address of each loaded tile in the run before."""
        self._is_worth = self._is_compiled = False
        self.going: Going | None = None
        """The latest run, if it was only begun."""
        self._goes_on = False
        """Whether the latest run was captured, and left its state where the next one reads it."""
        self._alone = RLock()  # nothing else may be launched while a run is captured

    def bound(self, loads: Loads) -> Resident:
        """The same regions, with other loads; neither runs while the other does."""
        bound = Resident(self.ready, loads, self.tie, self._may_capture)
        bound._alone = self._alone
        return bound

    def turn(self, inputs: Given) -> AbstractContextManager[Any]:
        """Whoever is inside runs alone."""
        del inputs
        return self._alone

    def run(
        self, inputs: Given, scalars: Given, donated: Collection[str], heard: Heard | None = None
    ) -> Values:
        """The tiles that are kept, none of them in the memory of an input.

        The device may still be busy. `heard` tells of every region.
        """
        self._goes_on, self.going = False, None
        captures = self._may_capture and heard is None
        staged = self.capture.staged if captures and self.capture is not None else ()
        values = self.loads.find(inputs, staged=staged)
        known = {**self.loads.fixed, **values} if self._views else {}
        borrowed = {tile: known[load][0] for tile, load in self._views.items() if load in known}
        loaded = Loaded(values, inputs, scalars, donated)
        made: Values | None = None
        capture = self._captured(loaded) if captures else None
        if capture is not None:
            made = capture.run(loaded)
            self.going = capture.going
            self._goes_on = capture.is_in_place and not self._views
        for name in donated:  # from now on only `values` has them, up to their last reader
            inputs[name].release()
        if made is None:
            made = self._in_order(loaded, heard)
        for tile, source in borrowed.items():
            made[tile] = (own_memory(made[tile][0], source),)
        return made

    def _captured(self, loaded: Loaded) -> Capture | None:
        """What replays a run: the last capture if it fits, or a new one where that pays."""
        if self.capture is not None:
            if self.capture.fits(loaded):
                return self.capture
            for tile, name in self.capture.staged.items():
                if tile not in loaded.values:
                    near = self.ready.libraries[0].from_numpy(loaded.inputs[name])
                    loaded.values[tile] = (near,)
            self.capture = None
        places = {tile: arrays[0].data_ptr() for tile, arrays in loaded.values.items()}
        if self._is_worth:
            staying = {tile for tile, at in places.items() if self._before.get(tile) == at}
            self.capture = Capture(self, loaded, staying)
        self._before = places
        return self.capture

    def goes_on(self, state: Given) -> bool:
        """Whether the next run can begin at once on this state: just what the latest run made."""
        return self._goes_on and self.loads.expects(state)

    def go_on(self, inputs: Given, scalars: Given, state: Given) -> Values | None:
        """Run on that state and on small arrays; None, with nothing done, if one is not small."""
        if self.capture is None or not self.capture.takes(inputs):
            return None
        made = self.capture.run(Loaded({}, inputs, scalars, state))
        self.going = self.capture.going
        for tensor in state.values():
            tensor.release()
        return made

    def _in_order(self, loaded: Loaded, heard: Heard | None) -> Values:
        """A usual run; how long it takes to begin says whether capturing pays."""
        start = perf_counter()
        made = self.carry_out(loaded.values, self.ready.scalars(loaded.scalars), heard)
        launched = perf_counter() - start
        if self._may_capture and heard is None:
            self.ready.synchronize()
            if self._is_compiled:  # by the first one
                self._is_worth = launched > WORTH * (perf_counter() - start)
            self._is_compiled = True
        return made

    def carry_out(
        self, values: Values, scalars: Sequence[Sequence[Tensor]], heard: Heard | None = None
    ) -> Values:
        """Begin all regions: `values` are what was loaded, and then what is kept.

        A tile goes when its last reader has begun.
        """
        values.update(self.loads.fixed)
        for number, region in enumerate(self.ready.regions):
            arrays = [array for tile in region.reads for array in values[tile]]
            if heard is not None:
                heard.begin(number)
            made = iter(self.ready.bound(number, arrays)(scalars[region.memory]))
            if heard is not None:
                heard.end(number)
            del arrays  # which else would keep what is dropped
            for tile in region.writes:
                values[tile] = tuple(next(made) for _ in self.ready.tiled.tiles[tile].types)
            for tile in self._dropped[number]:
                del values[tile]
        return values

    def housed(self, name: str, blocks: Blocks) -> Blocks:
        """The blocks of a result, in memory of their own."""
        del name
        return blocks

    def ended(self, made: Mapping[str, EngineTensor], start: float) -> Callable[[], float] | None:
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


class Going:
    """A run that has begun: the caller goes on while the device is busy, as torch's callers do."""

    def __init__(self) -> None:
        self._launched = perf_counter()
        self._start, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._start.record()

    def seconds(self, called: float) -> float:
        """How long it took from a time on, once it has ended."""
        self.end.synchronize()
        return self._launched - called + self._start.elapsed_time(self.end) / 1e3


class Capture:
    """A run as one graph of kernels, with the memory that it reads and writes."""

    def __init__(self, order: Resident, loaded: Loaded, staying: Collection[int]) -> None:
        device = order.ready.libraries[0].device
        tiled, loads = order.ready.tiled, order.loads
        small = loads.small(loaded.inputs)
        self.staged = {tile: loads.names[tile] for tile in small}
        """For each tile that a run takes from the host, its input."""
        shapes = {tile: Slot(array.shape, array.dtype) for tile, array in small.items()}
        types = tiled.program.graph.scalars
        numbers = {name: Slot((), types[name]) for name in loaded.scalars}
        self._staging = Staged({**shapes, **numbers}, device)
        self._renewed = {
            tile: new
            for name in loaded.donated
            for tile, new in order.renewed.get(name, {}).items()
        }
        """For each tile, the one that becomes it in the next run, and lies where it was read."""
        self._renewing = {name for name in loaded.donated if name in order.renewed}
        changing = [tile for tile in loaded.values if tile not in self.staged]
        changing = [tile for tile in changing if tile in self._renewed or tile not in staying]
        self._read: Values = {
            tile: tuple(map(_like, arrays)) if tile in changing else arrays
            for tile, arrays in loaded.values.items()
            if tile not in self.staged
        }
        self._fixed = {tile: x[0] for tile, x in self._read.items() if tile not in changing}
        self._tenants: dict[int, Callable[[], Tensor | None]] = dict.fromkeys(
            self._renewed, lambda: None
        )
        """What was handed out of the memory of each renewed tile."""
        own = [tile for tile in changing if tile not in self._renewed]
        self._copied = _by_type({tile: self._read[tile] for tile in own})
        self._is_small = loads.is_small
        self.is_in_place = False
        """Whether the latest run left what it renews in place, and read nothing else there."""
        self.going: Going | None = None
        """The latest run."""
        self._fill(loaded)
        self._staging.send()
        self.graph = torch.cuda.CUDAGraph()
        read = {**loads.fixed, **self._read}
        unwritten = (x for tile, own in read.items() if tile not in self._renewed for x in own)
        with steady(unwritten):
            self._record(order, [self._staging.near[name] for name in loaded.scalars])
        kept = self._renewed.values()
        self._copied_out = _by_type(self._made)
        self._others_out = _by_type({t: x for t, x in self._made.items() if t not in kept})

    def _record(self, order: Resident, scalars: Sequence[Tensor]) -> None:
        """Launch all kernels once as usual, so that they are loaded, and once to be captured."""
        near: Values = {tile: (self._staging.near[tile],) for tile in self.staged}
        here = torch.cuda.current_stream(self._staging.device)
        beside = torch.cuda.Stream(self._staging.device)
        beside.wait_stream(here)
        with torch.cuda.stream(beside):
            order.carry_out({**self._read, **near}, [scalars])
        here.wait_stream(beside)
        with torch.cuda.graph(self.graph):
            self._staging.send()
            made = order.carry_out({**self._read, **near}, [scalars])
            kept = order.ready.tiled.kept
            for tile in self._renewed:  # results lie in memory that no renewed tile takes
                source = self._read[tile][0]
                for other in kept:
                    made[other] = tuple(own_memory(array, source) for array in made[other])
            self._made = {tile: made[tile] for tile in kept}
            new = {tile: self._made[new] for tile, new in self._renewed.items()}
            for places, arrays in _by_type(new):
                _COPY_ALL(_taken(self._read, places), arrays)

    def fits(self, loaded: Loaded) -> bool:
        """Whether arrays assumed fixed have not moved, and nobody else needs what is written."""
        values = loaded.values
        if not self.staged.keys().isdisjoint(values) or not self._is_free(loaded):
            return False
        given = [values[tile][0] for tile in self._fixed]
        if all(map(is_, given, self._fixed.values())):
            return True
        return [array.data_ptr() for array in given] == [
            own.data_ptr() for own in self._fixed.values()
        ]

    def _is_free(self, loaded: Loaded) -> bool:
        """Whether nobody has what lies in the memory of renewed tiles but who gives it up."""
        tenants = [*map(call, self._tenants.values())]
        if all(tenant is None for tenant in tenants):
            return True
        given = [loaded.values[tile][0] for tile in self._tenants]
        return all(map(is_, given, tenants)) and self._gives_up(loaded)

    def _gives_up(self, loaded: Loaded) -> bool:
        """Whether all tensors are given up that this renews."""
        return bool(self._renewing) and self._renewing.issubset(loaded.donated)

    def takes(self, inputs: Given) -> bool:
        """Whether small arrays are given for all that comes from the host."""
        return all(self._is_small(tile, inputs[name]) for tile, name in self.staged.items())

    def run(self, loaded: Loaded) -> Values:
        """Launch all kernels; what comes out is copied, since the next run overwrites it.

        What renews tensors is not copied if all of them were given up: it stays where the next run
        reads it, if nobody else has it then.
        """
        if self.going is not None:
            self.going.end.synchronize()  # what it stages is read no more
        self._fill(loaded)
        self.going = Going()
        self.graph.replay()
        gives_up = self._gives_up(loaded)
        self.is_in_place = gives_up and self._read.keys() == self._renewed.keys()
        if gives_up:
            made = self._copies(self._others_out)
            for tile, new in self._renewed.items():
                made[new] = tuple(array.detach() for array in self._read[tile])
                self._tenants[tile] = ref(made[new][0])
        else:
            made = self._copies(self._copied_out)
        self.going.end.record()
        return made

    def _copies(self, groups: Groups) -> Values:
        tiles = {tile for places, _ in groups for tile, _ in places}
        copies = {tile: tuple(_like(array) for array in self._made[tile]) for tile in tiles}
        for places, made in groups:
            _COPY_ALL(_taken(copies, places), made)
        return copies

    def _fill(self, loaded: Loaded) -> None:
        self._staging.write((tile, loaded.inputs[name]) for tile, name in self.staged.items())
        self._staging.write(loaded.scalars.items())
        for places, own in self._copied:
            _COPY_ALL(own, _taken(loaded.values, places))
        if any(tenant() is None for tenant in [*self._tenants.values()][:1]):  # then none is there
            for places, given in _by_type({tile: loaded.values[tile] for tile in self._tenants}):
                _COPY_ALL(_taken(self._read, places), given)


_COPY_ALL: Any = vars(torch)["_foreach_copy_"]  # it has no public name
"""Copies many tensors of one type in few launches."""
Places = list[tuple[int, int]]
"""Arrays, each by its tile and its place among those of the tile."""
Groups = list[tuple[Places, "list[Tensor]"]]
"""Arrays of one type each, with their places."""


def _by_type(values: Values) -> Groups:
    """All arrays, those of one type together, with their places."""
    groups: dict[torch.dtype, tuple[Places, list[Tensor]]] = {}
    for tile, arrays in values.items():
        for number, array in enumerate(arrays):
            places, own = groups.setdefault(array.dtype, ([], []))
            places.append((tile, number))
            own.append(array)
    return [*groups.values()]


def _taken(values: Values, places: Places) -> list[Tensor]:
    return [values[tile][number] for tile, number in places]


def _like(array: Tensor) -> Tensor:
    """New memory for an array that lies like this one, with a place for every number."""
    shape, strides = array.shape, array.stride()
    if any(size > 1 and not stride for size, stride in zip(shape, strides, strict=True)):
        return torch.empty(shape, dtype=array.dtype, device=array.device)
    return torch.empty_strided(shape, strides, dtype=array.dtype, device=array.device)

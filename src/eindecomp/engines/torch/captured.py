"""Runs in order, and as CUDA graphs: where launching takes long, all is launched at once.

A run is captured with the arrays that it reads. Those that were the same in the run before are
taken to stay; small ones of the host are part of what is captured; others are copied to where the
captured run reads them. What is given up and renewed is left there for the next run.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from operator import call, is_
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import torch

from eindecomp.engines.torch.blocks import own_memory
from eindecomp.engines.torch.loads import Slot, Staged
from eindecomp.engines.torch.windows import renewed_tiles
from eindecomp.kernels.torch.decoding import steady

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from eindecomp.engines.torch.loads import Loads
    from eindecomp.engines.torch.ready_region import Heard, ReadyRegions

    Tensor = torch.Tensor
    Values = dict[int, tuple[Tensor, ...]]

_WORTH = 0.5  # of a run that goes into launching, from which on capturing pays


class Loaded(NamedTuple):
    """What a run is given."""

    values: Values
    """The tiles on the device, but for what is bound and what is staged."""
    inputs: Mapping[str, Any]
    scalars: Mapping[str, Any]
    donated: Collection[str]


class InOrder:
    """Regions one after another; a tile goes when its last reader has begun."""

    def __init__(self, ready: ReadyRegions, loads: Loads, tie: Mapping[str, str]) -> None:
        self.ready, self.loads = ready, loads
        last = {tile: each.number for each in ready.regions for tile in each.reads}
        self._dropped: list[list[int]] = [[] for _ in ready.regions]
        for tile, number in last.items():
            if tile not in ready.tiled.kept:
                self._dropped[number].append(tile)
        self.renewed = renewed_tiles(ready.tiled, tie)
        """For each tied input, what each of its tiles is in the next run."""

    def carry_out(
        self, values: Values, scalars: Sequence[Sequence[Tensor]], heard: Heard | None = None
    ) -> Values:
        """Begin all regions: `values` are what was loaded, and then what is kept."""
        values.update(self.loads.fixed)
        for number, region in enumerate(self.ready.regions):
            arrays = [array for tile in region.reads for array in values[tile]]
            with nullcontext() if heard is None else heard.region(number):
                made = iter(self.ready.call(number, arrays, scalars[region.memory]))
            del arrays  # which else would keep what is dropped
            for tile in region.writes:
                values[tile] = tuple(next(made) for _ in self.ready.tiled.tiles[tile].types)
            for tile in self._dropped[number]:
                del values[tile]
        return values


@dataclass(eq=False)
class Captures:
    """Decides from run to run whether to capture, and replays what was captured."""

    order: InOrder
    _before: Mapping[int, int] = field(default_factory=dict[int, int])
    """Where each loaded tile was in the run before."""
    capture: Capture | None = None
    _is_worth: bool = False

    @property
    def going(self) -> Going | None:
        """The latest run if it was a captured one, which the device may still carry out."""
        return None if self.capture is None else self.capture.going

    @property
    def staged(self) -> Collection[int]:
        """The tiles that the next run takes from the host, if small arrays are given for them."""
        return () if self.capture is None else self.capture.staged

    def run(self, loaded: Loaded) -> Values | None:
        """The tiles that are kept; None if the run must be carried out in the usual way."""
        if self.capture is not None:
            if self.capture.fits(loaded):
                return self.capture.run(loaded)
            for tile, name in self.capture.staged.items():
                if tile not in loaded.values:
                    near = self.order.ready.libraries[0].from_numpy(loaded.inputs[name])
                    loaded.values[tile] = (near,)
            self.capture = None
        places = {tile: arrays[0].data_ptr() for tile, arrays in loaded.values.items()}
        if self._is_worth:
            staying = {tile for tile, at in places.items() if self._before.get(tile) == at}
            self.capture = Capture(self.order, loaded, staying)
        self._before = places
        return None if self.capture is None else self.capture.run(loaded)

    @property
    def goes_on(self) -> bool:
        """Whether the latest run left what it renews in place, and reads only that and the host."""
        return self.capture is not None and self.capture.is_in_place

    def go_on(self, loaded: Loaded) -> Values | None:
        """The next run from there; None if other than small arrays are given for what is staged."""
        if self.capture is None or not self.capture.takes(loaded.inputs):
            return None
        return self.capture.run(loaded)

    def launched(self, launching: float, seconds: float) -> None:
        """Note how long a usual run took, and how much of it went into launching."""
        self._is_worth = launching > _WORTH * seconds


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

    def __init__(self, order: InOrder, loaded: Loaded, staying: Collection[int]) -> None:
        device = order.ready.libraries[0].device
        tiled, loads = order.ready.tiled, order.loads
        small = loads.small(loaded.inputs)
        self.staged = {tile: loads.names[tile] for tile in small}
        """By tile that a run takes from the host, the input."""
        shapes = {tile: Slot(array.shape, array.dtype) for tile, array in small.items()}
        types = tiled.program.graph.scalars
        numbers = {name: Slot((), types[name]) for name in loaded.scalars}
        self._staging = Staged({**shapes, **numbers}, device)
        self._renewed = {
            tile: new
            for name in loaded.donated
            for tile, new in order.renewed.get(name, {}).items()
        }
        """By tile what it is in the next run, and lies where this one read it."""
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
        """Whether the latest run left what it renews there, and nothing else is on the device."""
        self.going: Going | None = None
        """The latest run."""
        self._fill(loaded)
        self._staging.send()
        self._graph = torch.cuda.CUDAGraph()
        read = {**loads.fixed, **self._read}
        unwritten = (x for tile, own in read.items() if tile not in self._renewed for x in own)
        with steady(unwritten):
            self._record(order, [self._staging.near[name] for name in loaded.scalars])
        kept = self._renewed.values()
        self._copied_out = _by_type(self._made)
        self._others_out = _by_type({t: x for t, x in self._made.items() if t not in kept})

    def _record(self, order: InOrder, scalars: Sequence[Tensor]) -> None:
        """Launch all kernels once as usual, so that they are loaded, and once to be captured."""
        near: Values = {tile: (self._staging.near[tile],) for tile in self.staged}
        here = torch.cuda.current_stream(self._staging.device)
        beside = torch.cuda.Stream(self._staging.device)
        beside.wait_stream(here)
        with torch.cuda.stream(beside):
            order.carry_out({**self._read, **near}, [scalars])
        here.wait_stream(beside)
        with torch.cuda.graph(self._graph):
            self._staging.send()
            made = order.carry_out({**self._read, **near}, [scalars])
            kept = order.ready.tiled.kept
            self._made = {tile: tuple(map(self._apart, made[tile])) for tile in kept}
            new = {tile: self._made[new] for tile, new in self._renewed.items()}
            for places, arrays in _by_type(new):
                _COPY_ALL(_taken(self._read, places), arrays)

    def _apart(self, made: Tensor) -> Tensor:
        """What was made, in memory that no renewed tile takes."""
        for tile in self._renewed:
            made = own_memory(made, self._read[tile][0])
        return made

    def replay(self) -> None:
        """Launch all kernels on what was given last; nothing is copied."""
        self._graph.replay()

    def fits(self, loaded: Loaded) -> bool:
        """Whether what was taken to stay is where it was, and nobody needs what is written to."""
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

    def takes(self, inputs: Mapping[str, Any]) -> bool:
        """Whether small arrays are given for all that comes from the host."""
        return all(self._is_small(tile, inputs[name]) for tile, name in self.staged.items())

    def run(self, loaded: Loaded) -> Values:
        """Launch all kernels; what comes out is copied, since the next run overwrites it.

        But not what renews tensors if all of them were given up: it stays where the next run reads
        it, if nobody else has it then.
        """
        if self.going is not None:
            self.going.end.synchronize()  # what it stages is read no more
        self._fill(loaded)
        self.going = Going()
        self.replay()
        gives_up = self._gives_up(loaded)
        self.is_in_place = gives_up and self._read.keys() == self._renewed.keys()
        if gives_up:
            found = self._copies(self._others_out)
            for tile, new in self._renewed.items():
                found[new] = tuple(array.detach() for array in self._read[tile])
                self._tenants[tile] = ref(found[new][0])
        else:
            found = self._copies(self._copied_out)
        self.going.end.record()
        return found

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
    found: dict[torch.dtype, tuple[Places, list[Tensor]]] = {}
    for tile, arrays in values.items():
        for number, array in enumerate(arrays):
            places, own = found.setdefault(array.dtype, ([], []))
            places.append((tile, number))
            own.append(array)
    return [*found.values()]


def _taken(values: Values, places: Places) -> list[Tensor]:
    return [values[tile][number] for tile, number in places]


def _like(array: Tensor) -> Tensor:
    """Memory for as many numbers that lie as these do, but for each a place of its own."""
    shape, strides = array.shape, array.stride()
    if any(size > 1 and not stride for size, stride in zip(shape, strides, strict=True)):
        return torch.empty(shape, dtype=array.dtype, device=array.device)
    return torch.empty_strided(shape, strides, dtype=array.dtype, device=array.device)

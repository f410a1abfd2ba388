"""Runs as CUDA graphs: where launching kernels takes long, all of a run are launched at once.

A run is captured with the arrays that it reads. Those that were the same in the run before are
taken to stay; others are copied to where the captured run reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import is_
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eindecomp.engines.torch.resident import Resident

    Tensor = torch.Tensor
    Values = dict[int, tuple[Tensor, ...]]

_WORTH = 0.5  # of a run that goes into launching, from which on capturing pays


@dataclass(eq=False)
class Captures:
    """Decides from run to run whether to capture, and replays what was captured."""

    resident: Resident
    fixed: Collection[int] = frozenset()
    """The tiles that are the same in all runs."""
    _before: Mapping[int, int] = field(default_factory=dict[int, int])
    """Where each loaded tile was in the run before."""
    capture: Capture | None = None
    _is_worth: bool = False

    def run(self, values: Values, scalars: Mapping[str, Any]) -> Values | None:
        """The tiles that are kept; None if the run must be carried out in the usual way."""
        if self.capture is not None:
            if self.capture.fits(values):
                return self.capture.run(values, scalars)
            self.capture = None
        places = {tile: arrays[0].data_ptr() for tile, arrays in values.items()}
        if self._is_worth:
            staying = [tile for tile, at in places.items() if self._before.get(tile) == at]
            self.capture = Capture(self.resident, values, scalars, {*staying, *self.fixed})
            self.capture.trust(self.fixed)
        self._before = places
        return None if self.capture is None else self.capture.run(values, scalars)

    def launched(self, launching: float, seconds: float) -> None:
        """Note how long a usual run took, and how much of it went into launching."""
        self._is_worth = launching > _WORTH * seconds


class Capture:
    """A run as one graph of kernels, with the memory that it reads and writes."""

    def __init__(
        self,
        resident: Resident,
        values: Values,
        scalars: Mapping[str, Any],
        fixed: Collection[int],
    ) -> None:
        self._scalars = resident.ready.scalars(scalars)[0]
        self._read: Values = {
            tile: arrays if tile in fixed else tuple(_like(array) for array in arrays)
            for tile, arrays in values.items()
        }
        self._fixed = {tile: self._read[tile][0] for tile in fixed}
        copied = [tile for tile in values if tile not in fixed]
        self._copied = _by_type({tile: self._read[tile] for tile in copied})
        self._fill(values, scalars)
        device = resident.ready.libraries[0].device
        beside = torch.cuda.Stream(device)
        beside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(beside):  # once as usual, so that all kernels are loaded
            resident.carry_out(dict(self._read), [self._scalars])
        torch.cuda.current_stream(device).wait_stream(beside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            made = resident.carry_out(dict(self._read), [self._scalars])
        self._made = {tile: made[tile] for tile in resident.ready.tiled.kept}
        self._copied_out = _by_type(self._made)

    def trust(self, tiles: Collection[int]) -> None:
        """Look no more at some of what was taken to stay."""
        self._fixed = {tile: array for tile, array in self._fixed.items() if tile not in tiles}

    def replay(self) -> None:
        """Launch all kernels on what was given last; nothing is copied."""
        self._graph.replay()

    def fits(self, values: Values) -> bool:
        """Whether what was taken to stay is where it was."""
        given = [values[tile][0] for tile in self._fixed]
        if all(map(is_, given, self._fixed.values())):
            return True
        return [array.data_ptr() for array in given] == [
            own.data_ptr() for own in self._fixed.values()
        ]

    def run(self, values: Values, scalars: Mapping[str, Any]) -> Values:
        """Launch all kernels; what comes out is copied, since the next run overwrites it."""
        self._fill(values, scalars)
        self.replay()
        copies = {
            tile: tuple(_like(array) for array in arrays) for tile, arrays in self._made.items()
        }
        for places, made in self._copied_out:
            _COPY_ALL(_taken(copies, places), made)
        return copies

    def _fill(self, values: Values, scalars: Mapping[str, Any]) -> None:
        for scalar, number in zip(self._scalars, scalars.values(), strict=True):
            scalar.fill_(number)
        for places, own in self._copied:
            _COPY_ALL(own, _taken(values, places))


_COPY_ALL: Any = vars(torch)["_foreach_copy_"]  # it has no public name
"""Copies many tensors of one type in few launches."""
Places = list[tuple[int, int]]
"""Arrays, each by its tile and its place among those of the tile."""


def _by_type(values: Values) -> list[tuple[Places, list[Tensor]]]:
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
    return torch.empty_strided(array.shape, array.stride(), dtype=array.dtype, device=array.device)

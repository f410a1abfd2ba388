"""Runs as CUDA graphs: where launching kernels takes long, all of a run are launched at once.

A run is captured with the arrays that it reads. Those that were the same in the run before are
taken to stay; others are copied to where the captured run reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eindecomp.engines.torch.resident import Resident

    Tensor = torch.Tensor
    Values = dict[int, tuple[Tensor, ...]]

_WORTH = 0.5  # of a run that goes into launching, from which on capturing pays


@dataclass(eq=False)
class Captures:
    """Decides from run to run whether to capture, and replays what was captured."""

    resident: Resident
    _before: Mapping[int, int] = field(default_factory=dict[int, int])
    """Where each loaded tile was in the run before."""
    _capture: Capture | None = None
    _is_worth: bool = False

    def run(self, values: Values, scalars: Sequence[Tensor]) -> Values | None:
        """The tiles that are kept; None if the run must be carried out in the usual way."""
        if self._capture is not None:
            if self._capture.fits(values):
                return self._capture.run(values, scalars)
            self._capture = None
        places = {tile: arrays[0].data_ptr() for tile, arrays in values.items()}
        if self._is_worth:
            fixed = [tile for tile, at in places.items() if self._before.get(tile) == at]
            self._capture = Capture(self.resident, values, scalars, fixed)
        self._before = places
        return None if self._capture is None else self._capture.run(values, scalars)

    def launched(self, launching: float, seconds: float) -> None:
        """Note how long a usual run took, and how much of it went into launching."""
        self._is_worth = launching > _WORTH * seconds


class Capture:
    """A run as one graph of kernels, with the memory that it reads and writes."""

    def __init__(
        self,
        resident: Resident,
        values: Values,
        scalars: Sequence[Tensor],
        fixed: Collection[int],
    ) -> None:
        self._scalars = [scalar.clone() for scalar in scalars]
        self._read: Values = {
            tile: arrays if tile in fixed else tuple(_like(array) for array in arrays)
            for tile, arrays in values.items()
        }
        self._fixed = [(tile, self._read[tile][0]) for tile in fixed]
        self._copied = [tile for tile in values if tile not in fixed]
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

    def fits(self, values: Values) -> bool:
        """Whether what was taken to stay is where it was."""
        return all(
            (array := values[tile][0]) is own or array.data_ptr() == own.data_ptr()
            for tile, own in self._fixed
        )

    def run(self, values: Values, scalars: Sequence[Tensor]) -> Values:
        """Launch all kernels; what comes out is copied, since the next run overwrites it."""
        self._fill(values, scalars)
        self._graph.replay()
        copies = {
            tile: tuple(_like(array) for array in arrays) for tile, arrays in self._made.items()
        }
        _copy_all(
            [array for arrays in copies.values() for array in arrays],
            [array for arrays in self._made.values() for array in arrays],
        )
        return copies

    def _fill(self, values: Values, scalars: Sequence[Tensor]) -> None:
        targets = [array for tile in self._copied for array in self._read[tile]]
        sources = [array for tile in self._copied for array in values[tile]]
        _copy_all([*targets, *self._scalars], [*sources, *scalars])


def _copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy many tensors in few launches: those of one type together."""
    copy: Any = vars(torch)["_foreach_copy_"]  # it has no public name
    pairs: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for target, source in zip(targets, sources, strict=True):
        own = pairs.setdefault(target.dtype, ([], []))
        own[0].append(target)
        own[1].append(source)
    for group in pairs.values():
        copy(*group)


def _like(array: Tensor) -> Tensor:
    return torch.empty_strided(array.shape, array.stride(), dtype=array.dtype, device=array.device)

"""What a run gives back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Stats:
    """What a run took."""

    seconds: float
    flops: int
    bytes_moved: int
    """Between devices, as the plan counts it."""
    bytes_by_vertex: Mapping[str, int]
    peak_memory: int
    """Bytes of inputs, results and intermediate tensors that were held at once."""
    tasks: int
    workers: int


@dataclass(frozen=True, slots=True, eq=False)
class Result(Mapping[str, Array]):
    """The outputs by name, and `stats`."""

    outputs: Mapping[str, Array]
    stats: Stats

    # A mapping compares its values, and arrays have no single answer to that.
    __eq__ = object.__eq__
    __hash__ = object.__hash__  # pyright: ignore[reportAssignmentType] - a mapping has none

    def __getitem__(self, name: str) -> Array:
        return self.outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)

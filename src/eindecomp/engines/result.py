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
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __getitem__(self, name: str) -> Array:
        return self.outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)

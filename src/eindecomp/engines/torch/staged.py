"""Small arrays and numbers of a run on a GPU, which reach it all in one copy."""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from eindecomp.kernels.torch.dtypes import torch_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eindecomp.lang.dtypes import DType

    Key = int | str

_ALIGNED = 64
_SMALL = 1 << 16
"""The bytes up to which an array is written to pinned memory first."""


class Slot(NamedTuple):
    """What is put side by side with others: an array by its shape and type."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def nbytes(self) -> int:
        """What it takes."""
        return prod(self.shape) * self.dtype.itemsize


def is_small(given: Any) -> bool:
    """Whether what was given is an array of NumPy's that is worth putting beside others."""
    return type(given) is np.ndarray and given.nbytes <= _SMALL


class Staged:
    """Arrays side by side in pinned memory of the host, and in the same order on a GPU."""

    def __init__(self, slots: Mapping[Key, Slot], device: torch.device) -> None:
        sizes = [-(-slot.nbytes // _ALIGNED) * _ALIGNED for slot in slots.values()]
        *starts, total = accumulate(sizes, initial=0)
        self.device, on_gpu = device, device.type == "cuda"
        self._host = torch.empty(total, dtype=torch.uint8, pin_memory=on_gpu)
        self._near = torch.empty(total, dtype=torch.uint8, device=device)
        bytes_of: Any = self._host.numpy()
        self._written: dict[Key, Any] = {}
        self.near: dict[Key, torch.Tensor] = {}
        """The arrays on the GPU."""
        for (key, slot), start in zip(slots.items(), starts, strict=True):
            end = start + slot.nbytes
            self._written[key] = bytes_of[start:end].view(slot.dtype).reshape(slot.shape)
            self.near[key] = self._near[start:end].view(torch_type(slot.dtype)).view(slot.shape)

    def __contains__(self, key: object) -> bool:
        return key in self.near

    def write(self, given: Iterable[tuple[Key, Any]]) -> None:
        """Write arrays to the host's memory, while no copy to the GPU is under way."""
        for key, array in given:
            self._written[key][...] = array

    def send(self) -> None:
        """Begin to copy all of it to the GPU."""
        self._near.copy_(self._host, non_blocking=True)

"""Host memory that a GPU can copy from and to on its own: pinned, in blocks of any size.

Torch's own pinned memory comes in powers of two; here memory is mapped, registered once, and used
again when nobody has a tensor in it any more.
"""

from __future__ import annotations

import mmap
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from weakref import finalize

import numpy as np
import torch

from eindecomp.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Sequence

SMALL = 1 << 20  # bytes below which copying from memory that is not pinned is as fast


@dataclass(eq=False)
class HostMemory:
    """Blocks of host memory, pinned where there is a GPU."""

    pinned: bool
    _spare: dict[int, list[mmap.mmap]] = field(
        default_factory=lambda: defaultdict[int, list[mmap.mmap]](list)
    )

    def empty(self, nbytes: int) -> torch.Tensor:
        """So many bytes, of any contents; they come back when no tensor has them any more."""
        if nbytes == 0:
            return torch.empty(0, dtype=torch.uint8)
        spare = self._spare[nbytes]
        block = spare.pop() if spare else self._mapped(nbytes)
        array = np.frombuffer(block, np.uint8, nbytes)
        finalize(array, spare.append, block)
        return torch.from_numpy(array)

    def _mapped(self, nbytes: int) -> mmap.mmap:
        block = mmap.mmap(-1, nbytes)
        if self.pinned:
            tensor = torch.from_numpy(np.frombuffer(block, np.uint8, nbytes))
            register(tensor)
            finalize(block, _unregister, tensor.data_ptr())
        return block


class Pin:
    """Keeps the memory of a tensor of the host pinned where it is, as long as this lives."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.storage = tensor.untyped_storage()
        pages = _pages(tensor)
        _PINS[pages] += 1
        finalize(self, _release, pages, tensor.data_ptr())
        if _PINS[pages] == 1:
            register(tensor)


_PINS: Counter[range] = Counter()
"""The pages that are registered, and how many want them to be."""


def _pages(tensor: torch.Tensor) -> range:
    start, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    return range(start // mmap.PAGESIZE, -(-end // mmap.PAGESIZE))


def pinned(tensor: torch.Tensor, host: HostMemory) -> tuple[torch.Tensor, Pin | None]:
    """A tensor in pinned memory: itself, or a copy where it shares pages with another one.

    It stays so as long as the pin lives. Small ones are not worth it.
    """
    tensor = tensor.contiguous()
    if tensor.nbytes < SMALL or tensor.is_pinned():
        return tensor, None
    own = _pages(tensor)
    if own not in _PINS and any(p.start < own.stop and own.start < p.stop for p in _PINS):
        copy = typed(host.empty(tensor.nbytes), tensor.dtype, tensor.shape)
        return copy.copy_(tensor), None
    return tensor, Pin(tensor)


def register(tensor: torch.Tensor) -> None:
    """Pin a tensor's memory, which is not pinned yet."""
    code = int(_cuda().cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0))
    if code:
        raise RunError(
            f"{tensor.nbytes:,} bytes of host memory cannot be pinned: CUDA error {code}"
        )


def _release(pages: range, address: int) -> None:
    _PINS[pages] -= 1
    if not _PINS[pages]:
        del _PINS[pages]
        _unregister(address)


def _unregister(address: int) -> None:
    _cuda().cudaHostUnregister(address)


def _cuda() -> Any:
    return cast("Any", torch.cuda.cudart())


def typed(memory: torch.Tensor, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """Bytes as elements of a type, in a shape."""
    return memory.view(dtype).view(tuple(shape))

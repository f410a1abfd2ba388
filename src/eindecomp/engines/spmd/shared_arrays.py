"""Arrays in memory that other processes of this machine can map, as Linux names it: memory files.

A rank that is told which file holds an array, and of which process, reads its elements as if they
were its own.
"""

from __future__ import annotations

import mmap
import os
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import finalize

import numpy as np

from eindecomp.engines.spare import Spare
from eindecomp.kernels.address import address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]

_MOST = 256
"""Files at a time, since a process may not have many; arrays beyond that are as usual."""


class MemoryFile(NamedTuple):
    """What other processes find an array by."""

    descriptor: int
    serial: int
    """Descriptors are used again, serial numbers are not."""


NO_FILE = MemoryFile(-1, 0)
_SERIALS = count(1)
_FILES: dict[int, MemoryFile] = {}
"""By the address of the array."""


def shared_array(shape: Sequence[int], dtype: DType) -> Array:
    """A new array, of any contents, that others can map as long as it lives, if possible."""
    if len(_FILES) >= _MOST or not hasattr(os, "memfd_create"):
        return np.empty(shape, dtype)
    size = max(prod(shape) * dtype.itemsize, 1)
    descriptor = os.memfd_create("eindecomp")  # pyright: ignore[reportAttributeAccessIssue]
    try:
        os.ftruncate(descriptor, size)
        array = np.ndarray(tuple(shape), dtype, mmap.mmap(descriptor, size))
    except BaseException:
        os.close(descriptor)
        raise
    place = address(array)
    _FILES[place] = MemoryFile(descriptor, next(_SERIALS))
    finalize(array, _forget, place, descriptor)
    return array


def _forget(place: int, descriptor: int) -> None:
    del _FILES[place]
    os.close(descriptor)


def file_of(array: Array) -> MemoryFile:
    """What others find an array by; `NO_FILE` if they cannot."""
    return _FILES.get(address(array), NO_FILE)


class SharedSpare(Spare):
    """Shared arrays that are of no more use."""

    def _new(self, shape: tuple[int, ...], dtype: DType) -> Array:
        return shared_array(shape, dtype)

    def _is_own(self, array: Array) -> bool:
        return file_of(array) is not NO_FILE


def mapped(process: int, file: MemoryFile, shape: Sequence[int], dtype: DType) -> Array:
    """Another process's array, to be read."""
    size = max(prod(shape) * dtype.itemsize, 1)
    descriptor = os.open(f"/proc/{process}/fd/{file.descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        memory = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)
    return np.ndarray(tuple(shape), dtype, memory)

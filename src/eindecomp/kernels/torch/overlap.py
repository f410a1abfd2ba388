"""Programmatic dependent launch: a kernel begins while the one before it ends, and then waits.

GPUs have it from Hopper on. Where kernels take microseconds, it hides the time of launching them.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

_FIRST = (9, 0)
"""The first compute capability that has it."""


@cache
def overlaps(device: torch.device) -> bool:
    """Whether kernels on a device can begin while the one before them ends."""
    cuda: Any = torch.cuda
    if device.type != "cuda" or torch.version.cuda is None or find_spec("triton") is None:
        return False
    if cuda.get_device_capability(device) < _FIRST:
        return False
    from triton.language.extra import cuda as functions

    return hasattr(functions, "gdc_wait")


def launch_options(device: torch.device) -> dict[str, Any]:
    """What a kernel of Triton that has a constant OVERLAP is launched with."""
    return {"OVERLAP": True, "launch_pdl": True} if overlaps(device) else {"OVERLAP": False}


_STEADY: ContextVar[frozenset[int]] = ContextVar("steady", default=frozenset())
"""The addresses of memory that nothing writes to while kernels run that are launched now."""


@contextmanager
def steady(arrays: Iterable[torch.Tensor]) -> Generator[None]:
    """Let kernels that are launched inside read these arrays before it is their turn.

    Nothing may write to them that is launched inside, or goes on when the first kernel begins.
    """
    known = _STEADY.set(frozenset(map(_address, arrays)))
    try:
        yield
    finally:
        _STEADY.reset(known)


def is_steady(array: torch.Tensor) -> bool:
    """Whether a kernel that is launched now may read an array before it is its turn."""
    return _address(array) in _STEADY.get()


def _address(array: torch.Tensor) -> int:
    return array.untyped_storage().data_ptr()

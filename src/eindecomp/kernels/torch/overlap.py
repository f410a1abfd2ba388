"""Programmatic dependent launch: a kernel begins while the one before it ends, and then waits.

GPUs have it from Hopper on. Where kernels take microseconds, it hides the time of launching them.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch

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

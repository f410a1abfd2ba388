"""Timing work on a torch device."""

from __future__ import annotations

from collections.abc import Callable

import torch

from eindecomp.kernels.measured import seconds_by_clock


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """The seconds that the device takes for some work; earlier work may still be running."""
    if device.type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3
    return seconds_by_clock(work)

"""How fast a card reads its memory, multiplies, and copies from and to the host."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

import torch

from eindecomp.engines.torch.measured import measure_links, seconds_of
from eindecomp.experiments.record import Speed
from eindecomp.planner.costs.byte_sizes import show_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

_TURNS = 10
_READ = 4 << 30  # bytes
_PRODUCT = 8192
_SMALL = 1 << 20, 128
"""The same for the CPU, where these speeds are only to be there."""


@cache
def memory_speed(device: torch.device) -> float:
    """Bytes per second that kernels read: the faster of summing numbers and copying them."""
    size = _READ if device.type == "cuda" else _SMALL[0]
    numbers = torch.ones(size // 4, device=device)
    other = torch.empty_like(numbers)
    reading = size / fastest(numbers.sum, device)
    copying = 2 * size / fastest(lambda: other.copy_(numbers), device)
    return max(reading, copying)


@cache
def link_speeds(device: torch.device) -> tuple[float, float]:
    """Bytes per second from pinned memory of the host to the GPU, and back."""
    links = measure_links(device)
    return links.to_gpu, links.to_host


@cache
def product_speed(device: torch.device) -> float:
    """Operations per second of a square product in bfloat16."""
    size = _PRODUCT if device.type == "cuda" else _SMALL[1]
    matrix = torch.randn(size, size, device=device).bfloat16()
    return 2 * size**3 / fastest(lambda: matrix @ matrix, device)


def measured_speeds(device: torch.device) -> tuple[Speed, ...]:
    """All of them, for the record."""
    to_gpu, to_host = link_speeds(device)
    found = [
        Speed("reading the device's memory", memory_speed(device) / 1e9, "GB/s"),
        Speed("bfloat16 product", product_speed(device) / 1e12, "TFLOP/s"),
    ]
    if device.type == "cuda":
        found += [
            Speed("copying from pinned host memory", to_gpu / 1e9, "GB/s"),
            Speed("copying to pinned host memory", to_host / 1e9, "GB/s"),
        ]
    return tuple(found)


def fastest(work: Callable[[], object], device: torch.device) -> float:
    """The least seconds of some turns."""
    return min(seconds_of(work, device) for _ in range(_TURNS))


def card(device: torch.device) -> str:
    """A GPU in words."""
    found = properties(device)
    memory = show_bytes(int(found.total_memory))
    return f"{found.name}, {memory}, CUDA {vars(torch.version)['cuda']}"


def properties(device: torch.device) -> Any:
    """What torch knows of a GPU."""
    return cast("Any", torch.cuda).get_device_properties(device)

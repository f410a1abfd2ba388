"""How fast a card reads its memory, multiplies, and copies from and to the host."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

import torch

from eindecomp.engines.torch.windows import measure_links
from eindecomp.kernels.torch.timing import seconds_of
from eindecomp.planner.costs.byte_sizes import show_bytes
from on_gpu.record import Speed

if TYPE_CHECKING:
    from collections.abc import Callable

_TURNS = 10
_READ = 4 << 30  # bytes
_READ_ON_CPU = 1 << 20
_PRODUCT = 8192


@cache
def memory_speed(device: torch.device) -> float:
    """Bytes per second that kernels read: the faster of summing numbers and copying them."""
    size = _READ if device.type == "cuda" else _READ_ON_CPU
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


def product_speed(device: torch.device) -> float:
    """Operations per second of a square product in bfloat16."""
    matrix = torch.randn(_PRODUCT, _PRODUCT, device=device).bfloat16()
    return 2 * _PRODUCT**3 / fastest(lambda: matrix @ matrix, device)


def measured_speeds(device: torch.device) -> tuple[Speed, ...]:
    """All of them, for the record."""
    memory = Speed("reading the device's memory", memory_speed(device) / 1e9, "GB/s")
    if device.type != "cuda":
        return (memory,)
    to_gpu, to_host = link_speeds(device)
    return (
        memory,
        Speed(f"bfloat16 product, {_PRODUCT}³", product_speed(device) / 1e12, "TFLOP/s"),
        Speed("copying from pinned host memory", to_gpu / 1e9, "GB/s"),
        Speed("copying to pinned host memory", to_host / 1e9, "GB/s"),
    )


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

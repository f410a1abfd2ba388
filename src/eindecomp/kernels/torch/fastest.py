"""Choosing among ways to compute the same by measuring them."""

from __future__ import annotations

from functools import partial
from threading import Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from eindecomp.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

K = TypeVar("K")
_ROUNDS = 3
_FAR = 1.5  # times the best: a way that takes longer at first is not tried again
_KNOWN: dict[object, Any] = {}


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """How long the device takes for some work, which need not have been finished before."""
    if device.type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3
    start = perf_counter()
    work()
    return perf_counter() - start


def fastest(ways: Mapping[K, Callable[[], object]], device: torch.device) -> K:
    """The way that takes the least time; those that do not compile or run are left out."""
    best: dict[K, float] = {}
    failures: list[str] = []
    for name, way in ways.items():
        try:
            way()  # compiles
            best[name] = seconds_of(way, device)
        except Exception as error:
            failures.append(f"{name}: {error}")
    if not best:
        raise RunError(f"no way to compute this runs: {failures[0]}")
    left = [name for name in best if best[name] <= _FAR * min(best.values())]
    for _ in range(_ROUNDS):
        for name in left:
            best[name] = min(best[name], seconds_of(ways[name], device))
    return min(left, key=best.__getitem__)


def fastest_on(key: object, ways: Mapping[K, Callable[..., object]], like: Sequence[Tensor]) -> K:
    """The fastest way for tensors like these, measured once; `key` tells what is computed.

    This works while a function is traced, too, when there are no numbers: tensors that lie alike
    are made up, and computed on in a thread of their own, which no tracing reaches.
    """
    layouts = tuple((x.shape, x.stride(), x.dtype, x.device) for x in like)
    known = key, tuple(ways), layouts
    if known not in _KNOWN:
        found: list[K] = []
        thread = Thread(target=_measure, args=(ways, layouts, found))
        thread.start()
        thread.join()
        _KNOWN[known] = next(iter(found or ways))
    return _KNOWN[known]


def _measure(
    ways: Mapping[K, Callable[..., object]], layouts: Sequence[Any], found: list[K]
) -> None:
    """Note the fastest way, if any works."""
    with torch.no_grad():
        tensors = [
            torch.empty_strided(shape, stride, dtype=dtype, device=device).normal_()
            for shape, stride, dtype, device in layouts
        ]
        bound = {name: partial(way, *tensors) for name, way in ways.items()}
        try:
            found.append(fastest(bound, tensors[0].device))
        except RunError:  # whoever computes by the first will see why
            return

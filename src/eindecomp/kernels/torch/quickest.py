"""Choosing among ways to compute the same by measuring them, once for tensors of a layout.

This works while a function is traced, too, when there are no numbers: tensors that lie alike are
made up, and computed on in a thread of their own, which no tracing reaches.
"""

from __future__ import annotations

from threading import Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    Way = Callable[..., object]

K = TypeVar("K")
_TURNS = 4
_KNOWN: dict[object, Any] = {}


def quickest(key: object, ways: Mapping[K, Way], like: Sequence[Tensor]) -> K:
    """The way that takes the least time on tensors like these; `key` tells what is computed.

    A way that fails takes no part; if all do, it is the first.
    """
    layouts = tuple((x.shape, x.stride(), x.dtype, x.device) for x in like)
    known = key, tuple(ways), layouts
    if known not in _KNOWN:
        seconds: dict[K, float] = {}
        thread = Thread(target=_measure, args=(ways, layouts, seconds))
        thread.start()
        thread.join()
        _KNOWN[known] = min(seconds, key=lambda way: seconds[way], default=next(iter(ways)))
    return _KNOWN[known]


def _measure(ways: Mapping[Any, Way], layouts: Sequence[Any], seconds: dict[Any, float]) -> None:
    device = layouts[0][3]
    with torch.no_grad():
        tensors = [
            torch.empty_strided(shape, stride, dtype=dtype, device=device).normal_()
            for shape, stride, dtype, device in layouts
        ]
        working = dict(ways)
        for turn in range(_TURNS):
            for name, way in list(working.items()):
                _wait(device)
                start = perf_counter()
                try:
                    way(*tensors)
                except RuntimeError:  # a build of torch without it, or a shape that it lacks
                    del working[name]
                    seconds.pop(name, None)
                    continue
                _wait(device)
                if turn:  # the first one may compile
                    took = perf_counter() - start
                    seconds[name] = min(took, seconds.get(name, took))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

"""Working through a label space in pieces, so that what is joined at once stays small.

This is the last resort of joins that no matrix product and no generated kernel computes. While a
region is traced it is left out for aggregations that the compiler fuses with their joins: those are
never in memory.
"""

from __future__ import annotations

import sys
from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from eindecomp.kernels.torch.views import Box
    from eindecomp.lang.einsum import Labels

    States = tuple[Tensor, ...]

LIMIT = 2**28
"""The most bytes that are joined at once."""
_TRACER = "torch.fx.experimental.proxy_tensor"


def is_traced() -> bool:
    """Whether operations are recorded for a compiler rather than run."""
    tracer: Any = sys.modules.get(_TRACER)  # what was never imported traces nothing
    return torch.compiler.is_compiling() or (
        tracer is not None and tracer.get_proxy_mode() is not None
    )


def in_pieces(
    sizes: Mapping[str, int],
    output: Labels,
    itemsize: int,
    compute: Callable[[Box], States],
    combine: Callable[[States, States], States],
) -> States:
    """The states of a label space: `compute` gives those of a box, of at most `LIMIT` bytes."""
    return _states({k: (0, n) for k, n in sizes.items()}, output, itemsize, compute, combine)


def _states(
    box: Box,
    output: Labels,
    itemsize: int,
    compute: Callable[[Box], States],
    combine: Callable[[States, States], States],
) -> States:
    points = prod(length for _, length in box.values())
    pieces = -(-points * itemsize // LIMIT)
    if pieces <= 1:
        return compute(box)
    label = _longest(box, output)
    start, length = box[label]
    step = -(-length // min(pieces, length))
    found = [
        _states(
            {**box, label: (low, min(step, start + length - low))},
            output,
            itemsize,
            compute,
            combine,
        )
        for low in range(start, start + length, step)
    ]
    if label not in output:
        return reduce(combine, found)
    axis = output.index(label)
    return tuple(torch.cat(parts, axis) for parts in zip(*found, strict=True))


def _longest(box: Box, output: Labels) -> str:
    """The longest label of the result, or an aggregated one where the result has none left."""
    kept = [label for label in output if box[label][1] > 1]
    return max(kept or box, key=lambda label: box[label][1])

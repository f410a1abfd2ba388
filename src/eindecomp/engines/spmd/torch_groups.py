"""Groups of torch.distributed, of whatever backend carries their arrays."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
import torch.distributed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from eindecomp.engines.spmd.transport import Span

    Array = Any
    """NumPy's, or torch's tensor."""

dist: Any = torch.distributed  # whose types say less than its documentation

# Torch has had two names for each, of which it warns of the older one.
ALL_GATHER: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
REDUCE_SCATTER: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Backend(Protocol):
    """What differs from backend to backend."""

    @property
    def rank(self) -> int:
        """Which rank this process is."""
        ...

    @property
    def gathers_in_place(self) -> bool:
        """Whether a member's part of an all-gather may be in its place already."""
        ...

    def all_to_all(self, group: TorchGroup, out: Sequence[Array], into: Sequence[Array]) -> Works:
        """A flat array to each member and one from each; none where there is nothing in it."""
        ...


class TorchGroup:
    """A process group."""

    def __init__(self, backend: Backend, group: Any, ranks: tuple[int, ...]) -> None:
        self._backend, self.group, self.ranks = backend, group, ranks
        self._place = ranks.index(backend.rank)

    def all_gather(self, own: Array | None, into: Array, counts: Sequence[int]) -> Works:
        """Every member's elements one after another into a flat array."""
        start, count = sum(counts[: self._place]), counts[self._place]
        mine = _part(into, (start, count))
        if len(set(counts)) == 1 and (own is not None or self._backend.gathers_in_place):
            parts = as_bytes(into), as_bytes(mine if own is None else own)
            return Works([ALL_GATHER(*parts, self.group, True)], parts)
        # Backends gather parts of one size only.
        if own is not None:
            mine[...] = own
        spans = list(zip(accumulate(counts, initial=0), counts, strict=False))
        nothing = spans[self._place] = (start, 0)
        sent = [nothing if k == self._place else (start, count) for k in range(len(counts))]
        return self.all_to_all(into, sent, into, spans)

    def all_to_all(
        self, out: Array, out_spans: Sequence[Span], into: Array, into_spans: Sequence[Span]
    ) -> Works:
        """To each member the span of `out` that is its own, from each into that of `into`."""
        parts = [_part(out, span) for span in out_spans], [_part(into, span) for span in into_spans]
        return self._backend.all_to_all(self, *parts)

    def reduce_scatter(self, out: Array, into: Array, counts: Sequence[int]) -> Works:
        """The sum of all members' arrays: of each member its own part."""
        del counts
        arrays = as_tensor(into), as_tensor(out)
        return Works([REDUCE_SCATTER(*arrays, dist.ReduceOp.SUM, self.group, True)], arrays)


class Works:
    """What torch has under way, and with it the arrays that it reads and writes."""

    __slots__ = ("_arrays", "_works")

    def __init__(self, works: list[Any], arrays: Sequence[Array] = ()) -> None:
        self._works, self._arrays = works, arrays

    def wait(self) -> None:
        """Wait for all of it; on a GPU, only the GPU does."""
        for work in self._works:
            work.wait()
        self._arrays = ()


def own_group(
    groups: Sequence[tuple[int, ...]], rank: int, backend: str, timeout: timedelta | None = None
) -> tuple[Any, tuple[int, ...]]:
    """A rank's group of several, and its members; all are made by all ranks, in one order."""
    made = [dist.new_group(list(ranks), timeout, backend) for ranks in groups]
    [place] = [k for k, ranks in enumerate(groups) if rank in ranks]
    return made[place], groups[place]


def as_tensor(array: Array) -> torch.Tensor:
    """An array as torch's tensor, in the same memory."""
    return array if isinstance(array, torch.Tensor) else torch.from_numpy(array)


def as_bytes(array: Array) -> torch.Tensor:
    """A flat array as its bytes, which every backend carries."""
    if isinstance(array, torch.Tensor):
        return array.view(torch.uint8)
    return torch.from_numpy(array.view(np.uint8))


def _part(array: Array, span: Span) -> Array:
    start, count = span
    return array[start : start + count]

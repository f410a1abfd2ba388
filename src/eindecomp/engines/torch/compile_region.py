"""Compiling regions: traced once for tensors of a layout, fused by Inductor, kept on disk by it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from eindecomp.kernels.cache import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.engines.torch.region_code import RegionCode

    Tensor = torch.Tensor
    Function = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]
    """Of the tensors that are read, the scalars, and the tensors to write to, if any."""

Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device]


def layout_of(array: Tensor) -> Layout:
    """All that a compiled function depends on but the numbers."""
    return tuple(array.shape), array.stride(), array.dtype, array.device


def written(
    code: RegionCode, arrays: Sequence[Tensor], scalars: Sequence[Tensor], into: Sequence[Tensor]
) -> Sequence[Tensor]:
    """What a region makes: new tensors, or if there are some to write to, these."""
    made = code(arrays, scalars)
    for target, source in zip(into, made, strict=False):
        target.copy_(source)
    return into or made


def traced(
    code: RegionCode, arrays: Sequence[Tensor], scalars: Sequence[Tensor], into: Sequence[Tensor]
) -> Any:
    """A region as a graph of torch's own operations; no memory is taken for that."""
    first, second = len(arrays), len(arrays) + len(scalars)

    def flat(*given: Tensor) -> list[Tensor]:
        made = written(code, given[:first], given[first:second], given[second:])
        return [] if into else list(made)

    with FakeTensorMode() as mode, torch.no_grad():
        fakes = [_fake(mode, array) for array in (*arrays, *scalars, *into)]
        return make_fx(flat)(*fakes)


def _fake(mode: FakeTensorMode, array: Tensor) -> Tensor:
    with mode:
        return torch.empty_strided(
            array.shape, array.stride(), dtype=array.dtype, device=array.device
        )


def compiled(
    code: RegionCode, arrays: Sequence[Tensor], scalars: Sequence[Tensor], into: Sequence[Tensor]
) -> Function:
    """A region, fused for tensors that lie as these do."""
    folder = cache_folder()
    if folder is not None:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
    fused = torch.compile(traced(code, arrays, scalars, into), dynamic=False, fullgraph=True)

    def call(
        arrays: Sequence[Tensor], scalars: Sequence[Tensor], into: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        made = fused(*arrays, *scalars, *into)
        return into or made

    return call

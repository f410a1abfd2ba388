"""Compiling regions: traced once for tensors of a layout, fused by Inductor, kept on disk by it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor import compile as compile_graph
from torch._inductor import config as inductor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from eindecomp.kernels.cache import cache_folder
from eindecomp.kernels.torch.overlap import overlaps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eindecomp.engines.torch.joined import Join
    from eindecomp.engines.torch.region_code import RegionCode

    Tensor = torch.Tensor
    Function = Callable[["Call"], Sequence[Tensor]]

_LITTLE = 1 << 20  # bytes
Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device]


def layout_of(array: Tensor) -> Layout:
    """All that a compiled function depends on but the numbers."""
    return tuple(array.shape), array.stride(), array.dtype, array.device


@dataclass(frozen=True)
class Call:
    """The tensors that a region is carried out with."""

    arrays: Sequence[Tensor]
    scalars: Sequence[Tensor]
    joined: Mapping[Join, Tensor]
    into: Sequence[Tensor]
    """Where results go; if there are none, they are new."""

    @property
    def all(self) -> list[Tensor]:
        """One after another."""
        return [*self.arrays, *self.scalars, *self.joined.values(), *self.into]

    @property
    def layout(self) -> object:
        """All that a compiled function depends on but the numbers."""
        return tuple(layout_of(array) for array in self.all), len(self.joined), len(self.into)

    def of(self, tensors: Sequence[Tensor]) -> Call:
        """The same call of other tensors, given one after another."""
        given = iter(tensors)
        arrays, scalars = ([next(given) for _ in part] for part in (self.arrays, self.scalars))
        joined = {join: next(given) for join in self.joined}
        return Call(arrays, scalars, joined, [next(given) for _ in self.into])


def carry_out(code: RegionCode, call: Call) -> Sequence[Tensor]:
    """What a region makes: new tensors, or if there are some to write to, these."""
    made = code(call.arrays, call.scalars, call.joined)
    for target, source in zip(call.into, made, strict=False):
        target.copy_(source)
    return call.into or made


def traced(code: RegionCode, call: Call) -> Any:
    """A region as a graph of torch's own operations; no memory is taken for that."""

    def flat(*given: Tensor) -> list[Tensor]:
        made = carry_out(code, call.of(given))
        return [] if call.into else list(made)

    with FakeTensorMode() as mode, torch.no_grad():
        return make_fx(flat)(*_without_memory(call, mode))


def _without_memory(call: Call, mode: FakeTensorMode) -> list[Tensor]:
    """Tensors that lie as those of a call do, no two in the same memory: they have none."""
    with mode:
        return [
            torch.empty_strided(array.shape, array.stride(), dtype=array.dtype, device=array.device)
            for array in call.all
        ]


def _is_brief(code: RegionCode) -> bool:
    """Whether a region makes so little that reading its weights is most of what it does."""
    tiles = code.tiled.tiles
    return max((tiles[op.into].nbytes for op in code.region.ops), default=0) < _LITTLE


def _for_latency(code: RegionCode) -> dict[str, Any]:
    """The options of Inductor for kernels of microseconds.

    Its search for better blocks (`coordinate_descent_tuning`) is not among them: what it measures
    of such kernels is noise, and what it finds is slower as often as faster.
    """
    pdl = overlaps(code.library.device) and hasattr(inductor.triton, "enable_pdl")
    return {"triton.enable_pdl": True} if pdl else {}


def compiled(code: RegionCode, call: Call) -> Function:
    """A region, fused for tensors that lie as these do."""
    folder = cache_folder()
    if folder is not None:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
    options: Any = _for_latency(code) if _is_brief(code) else {}
    # Without torch.compile's guards: what they check, whoever calls this has found to be equal. By
    # them tensors that lie side by side in one memory would be others than those that lie apart.
    examples: list[Any] = [*_without_memory(call, FakeTensorMode())]
    with torch.no_grad():
        fused: Any = compile_graph(traced(code, call), examples, options=options)

    def run(call: Call) -> Sequence[Tensor]:
        made = fused(*call.all)
        return call.into or made

    return run

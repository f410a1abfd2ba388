"""EinSums on the CPU that are no matrix products: generated loops in one pass over memory.

Torch would take a pass for every function of the join, and one more for the aggregation.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.kernels.cpu.einsum import einsum_kernel
from eindecomp.kernels.torch.dtypes import torch_type
from eindecomp.lang.dtypes import BFLOAT16

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from torch import Tensor

    from eindecomp.kernels.cpu.einsum import EinSumKernel
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.einsum import EinSum

_WORTH = 1 << 14
"""Points of a join from which loops are generated: that takes a moment, once."""


class LoopsOnCpu:
    """An EinSum as loops over the memory of torch's tensors."""

    def __init__(
        self,
        op: EinSum,
        dtypes: tuple[DType, ...],
        out: DType,
        scalar_types: tuple[tuple[str, DType], ...],
        lent: tuple[tuple[str, int], ...],
    ) -> None:
        self._op, self._out = op, out
        self._kernel: EinSumKernel = einsum_kernel(op, dtypes, out, scalar_types, lent)

    def suit(self, sizes: Mapping[str, int]) -> bool:
        """Whether tiles of these sizes are large enough."""
        return prod(sizes[label] for label in self._op.labels) >= _WORTH

    def __call__(
        self,
        operands: Sequence[Tensor | None],
        scalars: Sequence[object],
        sizes: Mapping[str, int],
    ) -> Tensor:
        """The finished result, in a tensor of its own."""
        shape = [sizes[label] for label in self._op.output]
        made = torch.empty(shape, dtype=torch_type(self._out))
        arrays = [None if x is None else _array(x) for x in operands]
        self._kernel.whole(arrays, _array(made), scalars)
        return made


def are_here(operands: Sequence[Tensor | None]) -> bool:
    """Whether the numbers of operands are in memory, not recorded for a compiler."""
    return {type(x) for x in operands if x is not None} == {torch.Tensor}


def _array(x: Tensor) -> np.ndarray[Any, Any]:
    x = x.detach() if x.requires_grad else x
    if x.dtype == torch.bfloat16:
        return x.view(torch.int16).numpy().view(BFLOAT16)
    return x.numpy()

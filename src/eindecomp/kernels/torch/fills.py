"""Tensors that are made from their own indices."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.kernels.point_program import scalar_type
from eindecomp.kernels.torch.casts import cast
from eindecomp.kernels.torch.dtypes import as_tensor
from eindecomp.kernels.torch.functions import torch_functions
from eindecomp.kernels.torch.views import aligned, expanded
from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.dtypes import INT64
from eindecomp.lang.scalar import used_scalars
from eindecomp.lang.scalar_types import result_type, with_casts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from eindecomp.graph.ops import Fill
    from eindecomp.lang.dtypes import DType


def filled_box(
    op: Fill,
    box: Sequence[tuple[int, int]],
    scalars: Mapping[str, object],
    types: Mapping[str, DType],
    device: torch.device,
) -> Tensor:
    """A box of the tensor: along each dimension the indices from low to high."""
    index = [
        aligned(torch.arange(low, high, device=device), (label,), op.output)
        for label, (low, high) in zip(op.output, box, strict=True)
    ]
    value, names, of = _compiled(op, tuple(types.items()), device)
    given = [as_tensor(scalars[name], scalar_type(types[name]), device) for name in names]
    found = cast(value(*index, *given), of, device)
    return expanded(found, [high - low for low, high in box])


@lru_cache(maxsize=256)
def _compiled(
    op: Fill, types: tuple[tuple[str, DType], ...], device: torch.device
) -> tuple[Any, Sequence[str], DType]:
    """The function of indices, then scalars; which scalars those are; and the result's type."""
    indices = [INT64] * len(op.output)
    explicit, _ = with_casts(op.value, indices, dict(types))
    names = used_scalars(explicit)
    function = compile_scalar(explicit, len(op.output), torch_functions(device), names)
    return function, names, result_type(op.value, indices, dict(types))

"""Where a generated kernel is asked for, so that a large joined product is never in memory."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from torch import Tensor

    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.einsum import EinSum

    FusedStates = Callable[
        [Sequence[Tensor | None], Mapping[str, int], Sequence[Tensor]], Sequence[Tensor]
    ]
    """From operands, the sizes of all labels and the run-time scalars to unfinished states."""

_GENERATED = "eindecomp.kernels.torch.generated"


def fused_join(
    op: EinSum,
    dtypes: tuple[DType, ...],
    out: DType,
    scalar_types: tuple[tuple[str, DType], ...],
    device: torch.device,
) -> FusedStates | None:
    """What joins and aggregates operands on a device without the joined product, if anything."""
    if device.type != "cuda" or find_spec(_GENERATED) is None:
        return None
    joins: Any = import_module(f"{_GENERATED}.join")
    found = joins.fused_join(op, dtypes, out, scalar_types)
    if found is None:
        return None
    operations: Any = import_module(f"{_GENERATED}.op")
    return partial(operations.fused_results, found, partial=True)

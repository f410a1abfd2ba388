"""Tensor-parallel styles as `torch.distributed.tensor.parallel.parallelize_module` takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.distributed.tensor.parallel import ParallelStyle
    from torch.distributed.tensor.placement_types import Placement

    from eindecomp.frontends.tensor_parallel import Style


def module_plan(styles: Mapping[str, Style]) -> dict[str, ParallelStyle]:
    """The style of each module, with the layouts that its input comes and its result is left in."""
    return {layer: _parallel_style(style) for layer, style in styles.items()}


def _parallel_style(style: Style) -> ParallelStyle:
    given = _layout(style.input)
    match style.kind:
        case "rowwise":
            return RowwiseParallel(input_layouts=given, output_layouts=_layout(style.output))
        case "sequence_parallel":
            return SequenceParallel(sequence_dim=style.input or 0, use_local_output=True)
        case _:
            left = None if style.gathered else style.output
            return ColwiseParallel(input_layouts=given, output_layouts=_layout(left))


def _layout(dim: int | None) -> Placement:
    return Replicate() if dim is None else Shard(dim)

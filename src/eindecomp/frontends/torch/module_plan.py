"""Tensor-parallel styles as `torch.distributed.tensor.parallel.parallelize_module` takes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)

from eindecomp.frontends.tensor_parallel import FEATURES, UNCUT, WHOLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.distributed.tensor.parallel import ParallelStyle
    from torch.distributed.tensor.placement_types import Placement

    from eindecomp.frontends.tensor_parallel import Style


def module_plan(styles: Mapping[str, Style], *, divided: bool) -> dict[str, ParallelStyle]:
    """The style of each module, with the layouts that its input comes and its result is left in.

    Between layers devices divide positions, if `divided`, or all have everything.
    """
    if not divided:
        styles = {name: _whole(style) for name, style in styles.items() if style.kind not in UNCUT}
    return {layer: _parallel_style(style) for layer, style in styles.items()}


def _whole(style: Style) -> Style:
    """A style whose input and result are whole wherever devices would divide positions."""
    given, left = (dim if dim == FEATURES else WHOLE for dim in (style.input, style.output))
    return replace(style, input=given, output=left)


def _parallel_style(style: Style) -> ParallelStyle:
    given = _layout(style.input)
    match style.kind:
        case "rowwise":
            return RowwiseParallel(input_layouts=given, output_layouts=_layout(style.output))
        case "sequence_parallel":
            return SequenceParallel(sequence_dim=style.input or 0, use_local_output=True)
        case "divided":
            return PrepareModuleOutput(
                output_layouts=given, desired_output_layouts=_layout(style.output)
            )
        case _:
            left = None if style.gathered else style.output
            return ColwiseParallel(input_layouts=given, output_layouts=_layout(left))


def _layout(dim: int | None) -> Placement:
    return Replicate() if dim is None else Shard(dim)

"""Tensor-parallel styles as `torch.distributed.tensor.parallel.parallelize_module` takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.distributed.tensor.parallel import ParallelStyle
    from torch.distributed.tensor.placement_types import Placement

    from eindecomp.frontends.tensor_parallel import Style


def module_plan(styles: Mapping[str, Style]) -> dict[str, ParallelStyle]:
    """The style of each module that is cut, with the layouts of its input and its result."""
    return {
        layer: _parallel_style(style)
        for layer, style in styles.items()
        if style.kind != "replicate"
    }


def _parallel_style(style: Style) -> ParallelStyle:
    kind = RowwiseParallel if style.kind == "rowwise" else ColwiseParallel
    return kind(input_layouts=_layout(style.takes_whole), output_layouts=_layout(style.gives_whole))


def _layout(whole: bool) -> Placement:
    return Replicate() if whole else Shard(-1)

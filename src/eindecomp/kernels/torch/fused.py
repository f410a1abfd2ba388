"""Where kernels are asked for joins that would not fit in memory beside their operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from eindecomp.kernels.point_program import PointProgram
    from eindecomp.lang.einsum import EinSum

    FusedStates = Callable[[Sequence[Tensor], Sequence[Tensor]], tuple[Tensor, ...]]
    """From the operands that are read and the run-time scalars to the unfinished states."""


def fused_join(op: EinSum, program: PointProgram, operands: Sequence[Tensor]) -> FusedStates | None:
    """What joins and aggregates such operands without the joined product in memory, if anything."""
    del op, program, operands
    return None

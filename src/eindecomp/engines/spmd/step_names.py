"""Steps as messages name them, and errors with the step in which they happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.engines.spmd.watch import NOWHERE
from eindecomp.errors import EinDecompError, RunError
from eindecomp.layout.boxes import show_box
from eindecomp.tra.program.steps import (
    AllGather,
    Compute,
    Free,
    Generate,
    Load,
    Move,
    ReduceScatter,
    kind_of,
)

if TYPE_CHECKING:
    from eindecomp.engines.spmd.protocols import Transport
    from eindecomp.tra.program.device_row import DeviceRow
    from eindecomp.tra.program.program import Program


def in_words(program: Program, step: int) -> str:
    """A step as messages name it."""
    if not 0 <= step < len(program.steps):
        return "counting what all ranks took"
    each = program.steps[step]
    match each:
        case Compute() | ReduceScatter() | AllGather():
            return f"{kind_of(each)} of {program.graph[each.vertex]}"
        case Move():
            source = program.buffers[each.source].tensor
            return f"{each.pattern} of {source} for {program.graph[each.vertex]}"
        case Free():
            return f"free of {program.buffers[each.buffer].tensor}"
        case Load() | Generate():
            return f"{kind_of(each)} of {program.buffers[each.into].tensor}"


def named(
    error: BaseException, step: int, program: Program, row: DeviceRow, transport: Transport
) -> BaseException:
    """What went wrong in a step, with its vertex, tile and rank."""
    if step == NOWHERE or isinstance(error, RunError):
        return error
    ours = isinstance(error, EinDecompError)
    why = str(error) if ours else f"{type(error).__name__}: {error}"
    where = f"{in_words(program, step)} on rank {row.device}"
    if step < len(row.steps):
        tile = show_box(row.steps[step].box)
        where = f"{in_words(program, step)}, tile {tile} on rank {row.device}"
    gone = [] if ours else transport.lost()
    if gone:
        why += f"; rank {', '.join(map(str, gone))} is gone"
    return RunError(f"{where}, step {step}: {why}")

"""Blocks that ranks compute inside of larger arrays, which halos complete: nothing is copied there.

A block that is read with its neighbours' borders is moved into buffers that are a little larger, of
which the rank has the most itself. All of them are views of one array, where they fit into one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from eindecomp.layout.boxes import Box, inside, volume
from eindecomp.tra.program import steps
from eindecomp.tra.program.device_row import DeviceRow, DeviceStep
from eindecomp.tra.program.memory import is_view
from eindecomp.tra.program.program import Program

_WIDER = 1.25
"""How many times as large as a block the array may be in which it is computed."""


@dataclass(frozen=True, slots=True)
class Surrounded:
    """A buffer that is computed inside of a larger array."""

    box: Box
    """That of the array."""
    blocks: dict[int, Box]
    """Of each buffer that is a part of it."""


def surrounded(program: Program, row: DeviceRow) -> dict[int, Surrounded]:
    """By buffer what surrounds it on this rank."""
    made: dict[int, DeviceStep] = {}
    moved: dict[int, list[DeviceStep]] = defaultdict(list)
    for own in row.steps:
        match own.step:
            case steps.Compute(is_partial=False) as step:
                made[step.into] = own
            case steps.Move(rows=None) as step if not own.is_identity:
                if not is_view(program, program.buffers[step.into], row.device):
                    moved[step.source].append(own)
            case _:
                pass
    freed = {step.buffer for step in program.steps if isinstance(step, steps.Free)}
    taken = {k: n for k, n in _writes(program).items() if n > 1}
    found: dict[int, Surrounded] = {}
    for buffer, moves in moved.items():
        own = made.get(buffer)
        if own is None or len(program.buffers[buffer].types) > 1:
            continue
        blocks = {buffer: own.box} | {_into(move): move.box for move in moves}
        hull = tuple(
            (min(low for low, _ in dims), max(high for _, high in dims))
            for dims in zip(*blocks.values(), strict=True)
        )
        kept = (each.box for move in moves for each in move.exchange.kept)
        is_here = all(inside(box, own.box) for box in kept) and volume(own.box) > 0
        is_alone = blocks.keys() <= freed and blocks.keys().isdisjoint(taken)
        if is_here and is_alone and volume(hull) <= _WIDER * volume(own.box):
            found[buffer] = Surrounded(hull, blocks)
    return found


def _into(own: DeviceStep) -> int:
    assert isinstance(own.step, steps.Move)  # noqa: S101
    return own.step.into


def _writes(program: Program) -> dict[int, int]:
    """How many steps write to each buffer."""
    counts: dict[int, int] = defaultdict(int)
    for step in program.steps:
        if not isinstance(step, steps.Free):
            counts[step.buffer if isinstance(step, steps.AllGather) else step.into] += 1
    return counts

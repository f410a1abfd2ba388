"""The memory model: what a device holds at every step of a program.

Inputs are held throughout, tied ones until they are last read. A result is held from the step that
makes it to the last one that reads it, outputs to the end; so are its second layout and its partial
results. What a reader has fetched is an array of its own unless it lies inside what the device
holds anyway: then it is a view. A reduction works on two blocks beside the partial results: the sum
so far, and what has just arrived; on a third where that has another type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from eindecomp.graph.work import reducing_bytes
from eindecomp.layout.boxes import meet, volume
from eindecomp.layout.tiling import Tiling
from eindecomp.tra.program.program import Program
from eindecomp.tra.program.steps import AllGather, Buffer, Free, Load, ReduceScatter, Step, used_by


@dataclass(frozen=True, slots=True)
class Change:
    """What a piece of work adds to the memory that is held, takes meanwhile, and lets go of."""

    vertex: str
    made: int
    working: int
    freed: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes that are held at once, and the vertex for which they are."""

    bytes: int
    vertex: str


def peak_of(changes: Iterable[Change]) -> Peak:
    """The most bytes that are held at once, one change after another."""
    total, peak = 0, Peak(0, "")
    for change in changes:
        total += change.made
        if total + change.working > peak.bytes or not peak.vertex:
            peak = Peak(total + change.working, change.vertex)
        total -= change.freed
    return peak


def peak_on(program: Program, device: int) -> Peak:
    """The most that a device holds at once."""
    return peak_of(_changes(program, device))


def fullest(program: Program) -> Peak:
    """The most that any device holds at once."""
    peaks = (peak_on(program, device) for device in range(program.devices))
    return max(peaks, key=lambda peak: peak.bytes)


def _changes(program: Program, device: int) -> Iterator[Change]:
    held: dict[int, int] = {}
    for step in program.steps:
        made = freed = 0
        buffer = program.buffers[used_by(step)[-1]]
        if isinstance(step, Free):
            freed = held.pop(step.buffer)
        elif not isinstance(step, AllGather):
            made = held[step.into] = bytes_on(program, buffer, device)
        vertex = getattr(step, "vertex", buffer.tensor)
        yield Change(vertex, made, working_bytes(program, step, device), freed)


def results_on(program: Program, devices: Sequence[int]) -> Iterator[Change]:
    """What each step adds to what several devices hold beside the inputs."""
    given = {buffer.number for own in program.inputs.values() for buffer in own}
    rows = [_changes(program, device) for device in devices]
    for step, changes in zip(program.steps, zip(*rows, strict=True), strict=True):
        if isinstance(step, Load | Free) and used_by(step)[-1] in given:
            continue
        yield Change(
            changes[0].vertex,
            sum(change.made for change in changes),
            sum(change.working for change in changes),
            sum(change.freed for change in changes),
        )


def bytes_on(program: Program, buffer: Buffer, device: int) -> int:
    """The bytes that a buffer takes on a device: none where it is a view."""
    return 0 if is_view(program, buffer, device) else buffer.nbytes(program.mesh, device)


def is_view(program: Program, buffer: Buffer, device: int) -> bool:
    """Whether a device holds all of a buffer's block in the buffer it is fetched from."""
    if buffer.alias_of is None:
        return False
    box = buffer.box(program.mesh, device)
    held = program.buffers[buffer.alias_of].box(program.mesh, device)
    return not volume(box) or (volume(held) > 0 and meet(box, held) == box)


def working_bytes(program: Program, step: Step, device: int) -> int:
    """What a step takes beside its buffers."""
    if not isinstance(step, ReduceScatter):
        return 0
    tiling = program.buffers[step.into].tiling
    own = Tiling(tiling.cut, step.split).box(program.mesh, device)
    parts = program.buffers[step.source].types
    return volume(own) * reducing_bytes(program.graph, program.computed_by(step), parts)

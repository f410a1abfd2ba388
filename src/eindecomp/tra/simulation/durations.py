"""What every step takes on every device, apart from waiting: kernels and exchanges."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from eindecomp.graph.ops import Op
from eindecomp.graph.shown import numbered
from eindecomp.graph.work import tile_operations
from eindecomp.layout.boxes import volume
from eindecomp.layout.cut import Cut, axes_in, interval, pieces_by
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import Tiling
from eindecomp.layout.view import Dim, Dims, view_of
from eindecomp.planner.costs.collectives import Level
from eindecomp.planner.costs.machine import Machine, function_seconds, rate
from eindecomp.solve.problem.arrays import Floats, Ints, Mask
from eindecomp.tra.program import steps
from eindecomp.tra.program.program import Program
from eindecomp.tra.simulation.network import (
    Network,
    PeerGroup,
    Peers,
    Phase,
    gather_phases,
    move_phases,
    reduce_phases,
)

Duration = Floats | tuple["TimedPhase", ...] | None
"""Seconds of kernel calls, the phases of an exchange, or nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class TimedPhase:
    """A phase in seconds, in the mesh's shape; by level first where links are meant."""

    seconds: Floats
    """From when a device and its peers are ready to when it has, and has combined, everything."""
    sending: Floats
    """How long each level's injection link is taken."""
    receiving: Floats
    """How long each level's ejection link is taken."""
    takes_part: Mask
    """Which devices send or receive anything."""
    received: Ints
    sent: Ints
    peers: Peers


@dataclass(frozen=True)
class Durations:
    """The durations of a program's steps on a machine; equal steps are worked out once."""

    program: Program
    machine: Machine
    levels: tuple[Level, ...]
    network: Network
    _known: dict[object, Any] = field(default_factory=dict[object, Any], compare=False, repr=False)

    def of(self, step: steps.Step) -> Duration:
        """What a step takes on every device; nothing for one that neither computes nor moves."""
        if isinstance(step, steps.Load | steps.Free):
            return None
        key = self._key(step)
        if key not in self._known:
            self._known[key] = self._duration(step)
        return self._known[key]

    def _key(self, step: steps.Step) -> object:
        """Equal for steps that take the same time."""
        buffers = self.program.buffers
        lie = tuple((buffers[n].tiling, buffers[n].types) for n in steps.used_by(step))
        if isinstance(step, steps.Compute):
            cuts = tuple(None if read is None else read.cut for read in step.reads)
            return self.program.computed_by(step).op, cuts, lie
        which = (getattr(step, name, 0) for name in ("axes", "split", "first"))
        return type(step), lie, *which

    def _duration(self, step: steps.Step) -> Duration:
        mesh, levels, buffers = self.program.mesh, self.levels, self.program.buffers
        match step:
            case steps.Generate(into):
                made = buffers[into]
                written = volumes(mesh, made.tiling) * float(made.item)
                return compute_seconds(self.machine, 0.0, written)
            case steps.Compute():
                return kernel_seconds(self.program, self.machine, step)
            case steps.Move():
                return self._timed(self._move(step))
            case steps.ReduceScatter():
                source, into = buffers[step.source], buffers[step.into]
                own = volumes(mesh, Tiling(into.tiling.cut, step.split))
                axes = axes_in(mesh, step.axes)
                phases = reduce_phases(mesh, levels, axes, own * source.item, self.network.reduce)
                if self.network.reduce != "direct":  # combined while it is passed on
                    return self._timed(phases)
                *before, last = self._timed(phases)
                # Each block that arrives is read, and the result is written.
                ways, elements = pieces_by(mesh, axes), own.astype(np.float64)
                traffic = elements * (ways * source.item + into.item)
                work = (ways - 1) * len(source.types) * elements
                combining = compute_seconds(self.machine, work, traffic)
                return (*before, replace(last, seconds=last.seconds + combining))
            case steps.AllGather():
                home = buffers[step.buffer]
                own = volumes(mesh, Tiling(home.tiling.cut, step.axes)) * home.item
                axes = axes_in(mesh, step.axes)
                return self._timed(gather_phases(mesh, levels, axes, own, self.network.gather))
            case _:
                raise TypeError(step)

    def _move(self, step: steps.Move) -> list[Phase]:
        mesh, source = self.program.mesh, self.program.buffers[step.source]
        held, wanted = source.tiling, self.program.buffers[step.into].tiling
        match step.pattern:
            case steps.LocalSlice():
                return []
            case steps.Gathered(axes):
                own = volumes(mesh, held)
                if not held.split:
                    own = shared_volumes(mesh, held.cut, wanted.cut)
                own = own * source.item
                return gather_phases(mesh, self.levels, axes, own, self.network.gather)
            case steps.Exchanged(axes):
                peers: Peers | None = PeerGroup(tuple(axes))
            case _:
                peers = None
        way = self.network.gather
        return move_phases(mesh, self.levels, held, wanted, source.item, way, peers, step.first)

    def _timed(self, phases: list[Phase]) -> tuple[TimedPhase, ...]:
        return tuple(self._seconds(phase) for phase in phases)

    def _seconds(self, phase: Phase) -> TimedPhase:
        """A phase in seconds: what a device receives, or the fullest of its peers sends."""
        sending, receiving = (self._carried(phase, each) for each in (phase.sent, phase.received))
        seconds = np.zeros(phase.received.shape[1:])
        for number, level in enumerate(self.levels):
            taken, given = phase.received[number] > 0, phase.sent[number] > 0
            fullest, latency = phase.peers.latest(sending[number]), level.start(phase.kind)
            arriving = np.where(taken, np.maximum(receiving[number], fullest), 0.0)
            between = (phase.rounds - 1) * latency
            receiving[number] = np.where(taken, arriving + between, 0.0)
            sending[number] = np.where(given, sending[number] + between, 0.0)
            seconds = np.maximum(seconds, np.where(taken, receiving[number] + latency, 0.0))
            seconds = np.maximum(seconds, sending[number])
        takes_part = (phase.received + phase.sent).sum(axis=0) > 0
        amounts = phase.received, phase.sent
        return TimedPhase(seconds, sending, receiving, takes_part, *amounts, phase.peers)

    def _carried(self, phase: Phase, amounts: Ints) -> Floats:
        """The seconds that links are busy: a shared link has the average of its devices' bytes."""
        busy = amounts.astype(np.float64)
        for number, level in enumerate(self.levels):
            inner = tuple(range(level.axes[-1] + 1, len(self.program.mesh.sizes)))
            if self.network.cards == "node" and inner:
                mean = busy[number].mean(axis=inner, keepdims=True)
                busy[number] = np.broadcast_to(mean, busy[number].shape)
            busy[number] = level.carried(phase.kind, busy[number])
        return busy


@lru_cache(maxsize=1 << 12)
def volumes(mesh: Mesh, tiling: Tiling) -> Ints:
    """How many elements every device has."""
    if tiling.split:
        counts = [volume(tiling.box(mesh, device)) for device in range(mesh.devices)]
        return np.array(counts, dtype=np.int64).reshape(mesh.sizes)
    return shared_volumes(mesh, tiling.cut, tiling.cut)


def shared_volumes(mesh: Mesh, one: Cut, other: Cut) -> Ints:
    """How many elements every device has under both of two cuts."""
    total = np.ones(mesh.devices, dtype=np.int64)
    for ours, theirs in zip(one, other, strict=True):
        (a, b), (c, d) = interval(mesh, ours), interval(mesh, theirs)
        total = total * np.maximum(np.minimum(b, d) - np.maximum(a, c), 0)
    return total.reshape(mesh.sizes)


def compute_seconds(
    machine: Machine,
    operations: Any,
    traffic: Any,
    op: Op | None = None,
    item: int = 4,
    functions: Any = 0.0,
) -> Floats:
    """The longer of computing and of reading and writing memory, and what a task takes beside.

    `op` and the bytes of an item say by which rate of the machine it is computed; without, it is
    element by element. `functions` are the seconds of elementary functions.
    """
    work = np.asarray(operations, dtype=np.float64)
    moved = np.asarray(traffic, dtype=np.float64)
    flops = rate(machine.flops, op, work / np.maximum(moved / item, 1.0), item)
    computing = work / flops + functions
    return np.maximum(computing, moved / machine.memory_bandwidth) + machine.task_overhead


def kernel_seconds(program: Program, machine: Machine, step: steps.Compute) -> Floats:
    """What a kernel call takes on every device: for its own tile, not the largest one."""
    graph, mesh = program.graph, program.mesh
    vertex = program.computed_by(step)
    view, made = view_of(graph, vertex), program.buffers[step.into]
    lengths: dict[str, Any] = {}
    _note_lengths(lengths, view.output, made.tiling.cut, program)
    traffic = volumes(mesh, made.tiling) * float(made.item)
    for dims, read in zip(view.reads, step.reads, strict=True):
        if dims is not None and read is not None:
            _note_lengths(lengths, dims, read.cut, program)
            item = program.buffers[read.buffer].item
            traffic = traffic + shared_volumes(mesh, read.cut, read.cut) * float(item)
    alone = tuple(Dim(label, 0, size) for label, size in numbered(vertex).items())
    _note_lengths(lengths, alone, step.numbers, program)
    tile = {label: lengths[label].astype(np.float64) for label in view.labels}
    work, item = tile_operations(vertex.op, tile), vertex.dtype.itemsize
    functions = function_seconds(machine.flops, vertex.op, tile, item)
    return compute_seconds(machine, work, traffic, vertex.op, item, functions)


def _note_lengths(lengths: dict[str, Any], dims: Dims, cut: Cut, program: Program) -> None:
    """How many units of each label a tile has, by the dimensions that carry it."""
    for dim, span in zip(dims, cut, strict=True):
        if dim.label is not None:
            low, high = interval(program.mesh, span)
            lengths[dim.label] = (high - low).reshape(program.mesh.sizes) // dim.scale

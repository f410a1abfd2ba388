"""What every step takes on every device, apart from waiting: kernels and exchanges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.graph.work import tile_operations
from eindecomp.layout.boxes import volume
from eindecomp.layout.cut import axes_in, interval, pieces_by
from eindecomp.layout.tiling import Tiling
from eindecomp.layout.view import view_of
from eindecomp.planner.costs.rates import function_seconds, rate
from eindecomp.tra.program.patterns import Exchanged, Gathered, LocalSlice
from eindecomp.tra.program.steps import (
    AllGather,
    Compute,
    Free,
    Generate,
    Load,
    Move,
    ReduceScatter,
    used_by,
)
from eindecomp.tra.simulation.network import (
    Group,
    Peers,
    Phase,
    gather_by_levels,
    gather_directly,
    move_directly,
    reduce_by_levels,
    reduce_directly,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eindecomp.graph.ops import Op
    from eindecomp.layout.cut import Cut
    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.tiling import Tiling
    from eindecomp.layout.view import Dims
    from eindecomp.planner.costs.machine import Machine
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.steps import Compute, Generate, ReduceScatter, Step
    from eindecomp.tra.simulation.network import Level, Network

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]
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
    received: Ints
    sent: Ints
    takes_part: Flags
    """Which devices send or receive anything."""
    peers: Peers


@dataclass(frozen=True)
class Durations:
    """The durations of a program's steps on a machine; equal steps are worked out once."""

    program: Program
    machine: Machine
    levels: tuple[Level, ...]
    network: Network
    _found: dict[object, Any] = field(default_factory=dict[object, Any], compare=False, repr=False)

    def of(self, step: Step) -> Duration:
        """What a step takes on every device; nothing for one that neither computes nor moves."""
        buffers = self.program.buffers
        lie = tuple((buffers[n].tiling, buffers[n].types) for n in used_by(step))
        match step:
            case Load() | Free():
                return None
            case Generate():
                return self._once(lie, lambda: fill_seconds(self.program, self.machine, step))
            case Compute():
                cuts = tuple(None if read is None else read.cut for read in step.reads)
                key = (self.program.graph[step.vertex].op, cuts, lie)
                return self._once(key, lambda: kernel_seconds(self.program, self.machine, step))
            case Move():
                return self._once(("move", lie), lambda: self._exchange(step))
            case ReduceScatter():
                key = ("reduce", lie, step.axes, step.split)
                return self._once(key, lambda: self._exchange(step))
            case AllGather():
                return self._once(("gather", lie, step.axes), lambda: self._exchange(step))

    def _exchange(self, step: Move | ReduceScatter | AllGather) -> tuple[TimedPhase, ...]:
        mesh = self.program.mesh
        match step:
            case Move():
                return self._timed(self._move(step))
            case ReduceScatter():
                into, axes = self.program.buffers[step.into].tiling, axes_in(mesh, step.axes)
                own = volumes(mesh, Tiling(into.cut, step.split))
                own = own * self.program.buffers[step.source].item
                ways = pieces_by(mesh, axes)
                combining = combine_seconds(self.program, self.machine, step, ways)
                *before, last = self._timed(self._reduce(axes, own))
                return (*before, replace(last, seconds=last.seconds + combining))
            case AllGather():
                home = self.program.buffers[step.buffer]
                own = volumes(mesh, Tiling(home.tiling.cut, step.axes)) * home.item
                return self._timed(self._gather(axes_in(mesh, step.axes), own))

    def _move(self, step: Move) -> list[Phase]:
        mesh, source = self.program.mesh, self.program.buffers[step.source]
        held, wanted = source.tiling, self.program.buffers[step.into].tiling
        match step.pattern:
            case LocalSlice():
                return []
            case Gathered(axes):
                own = volumes(mesh, held)
                if not held.split:
                    own = shared_volumes(mesh, held.cut, wanted.cut)
                return self._gather(axes, own * source.item)
            case Exchanged(axes):
                peers: Peers | None = Group(tuple(axes))
            case _:
                peers = None
        return [move_directly(mesh, self.levels, held, wanted, source.item, peers)]

    def _gather(self, axes: tuple[int, ...], own: Ints) -> list[Phase]:
        mesh, way = self.program.mesh, self.network.gather
        if way == "direct":
            return [gather_directly(mesh, self.levels, axes, own)]
        return gather_by_levels(mesh, self.levels, axes, own, way)

    def _reduce(self, axes: tuple[int, ...], own: Ints) -> list[Phase]:
        mesh, way = self.program.mesh, self.network.reduce
        if way == "direct":
            return [reduce_directly(mesh, self.levels, axes, own)]
        return reduce_by_levels(mesh, self.levels, axes, own, way)

    def _timed(self, phases: list[Phase]) -> tuple[TimedPhase, ...]:
        return tuple(self._seconds(phase) for phase in phases)

    def _seconds(self, phase: Phase) -> TimedPhase:
        """A phase in seconds: what a device receives, or the fullest of its peers sends."""
        sending, receiving = self._carried(phase.sent), self._carried(phase.received)
        seconds = np.zeros(phase.received.shape[1:])
        for number, level in enumerate(self.levels):
            taken, given = phase.received[number] > 0, phase.sent[number] > 0
            fullest = phase.peers.latest(sending[number])
            arriving = np.where(taken, np.maximum(receiving[number], fullest), 0.0)
            between = (phase.rounds - 1) * level.latency
            receiving[number] = np.where(taken, arriving + between, 0.0)
            sending[number] = np.where(given, sending[number] + between, 0.0)
            seconds = np.maximum(seconds, np.where(taken, receiving[number] + level.latency, 0.0))
            seconds = np.maximum(seconds, sending[number])
        takes_part = (phase.received + phase.sent).sum(axis=0) > 0
        return TimedPhase(
            seconds, sending, receiving, phase.received, phase.sent, takes_part, phase.peers
        )

    def _carried(self, amounts: Ints) -> Floats:
        """The seconds that links are busy: a shared link has the average of its devices' bytes."""
        found = amounts.astype(np.float64)
        for number, level in enumerate(self.levels):
            inner = tuple(range(level.axes[-1] + 1, len(self.program.mesh.sizes)))
            if self.network.cards == "node" and inner:
                mean = found[number].mean(axis=inner, keepdims=True)
                found[number] = np.broadcast_to(mean, found[number].shape)
            found[number] /= level.bandwidth
        return found

    def _once(self, key: object, make: Callable[[], Any]) -> Any:
        if key not in self._found:
            self._found[key] = make()
        return self._found[key]


@lru_cache(maxsize=1 << 12)
def volumes(mesh: Mesh, tiling: Tiling) -> Ints:
    """How many elements every device has."""
    if tiling.split:
        found = [volume(tiling.box(mesh, device)) for device in range(mesh.devices)]
        return np.array(found, dtype=np.int64).reshape(mesh.sizes)
    return shared_volumes(mesh, tiling.cut, tiling.cut)


def shared_volumes(mesh: Mesh, one: Cut, other: Cut) -> Ints:
    """How many elements every device has under both of two cuts."""
    total = np.ones(mesh.devices, dtype=np.int64)
    for ours, theirs in zip(one, other, strict=True):
        (a, b), (c, d) = interval(mesh, ours), interval(mesh, theirs)
        total = total * np.maximum(np.minimum(b, d) - np.maximum(a, c), 0)
    return total.reshape(mesh.sizes)


def sides(mesh: Mesh, cut: Cut) -> list[Ints]:
    """How far every device's block reaches along each dimension."""
    ends = (interval(mesh, span) for span in cut)
    return [(high - low).reshape(mesh.sizes) for low, high in ends]


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


def kernel_seconds(program: Program, machine: Machine, step: Compute) -> Floats:
    """What a kernel call takes on every device: for its own tile, not the largest one."""
    graph, mesh = program.graph, program.mesh
    vertex = graph[step.vertex]
    view, made = view_of(graph, vertex), program.buffers[step.into]
    lengths: dict[str, Any] = {}
    _note_lengths(lengths, view.output, made.tiling.cut, program)
    traffic = volumes(mesh, made.tiling) * float(made.item)
    for dims, read in zip(view.reads, step.reads, strict=True):
        if dims is not None and read is not None:
            _note_lengths(lengths, dims, read.cut, program)
            item = program.buffers[read.buffer].item
            traffic = traffic + shared_volumes(mesh, read.cut, read.cut) * float(item)
    tile = {label: lengths[label].astype(np.float64) for label in view.labels}
    work, item = tile_operations(vertex.op, tile), vertex.dtype.itemsize
    functions = function_seconds(machine.flops, vertex.op, tile, item)
    return compute_seconds(machine, work, traffic, vertex.op, item, functions)


def _note_lengths(lengths: dict[str, Any], dims: Dims, cut: Cut, program: Program) -> None:
    """How many units of each label a tile has, by the dimensions that carry it."""
    for dim, length in zip(dims, sides(program.mesh, cut), strict=True):
        if dim.label is not None:
            lengths[dim.label] = length // dim.scale


def fill_seconds(program: Program, machine: Machine, step: Generate) -> Floats:
    """What making the block of a fill takes: its elements are written."""
    made = program.buffers[step.into]
    return compute_seconds(machine, 0.0, volumes(program.mesh, made.tiling) * float(made.item))


def combine_seconds(program: Program, machine: Machine, step: ReduceScatter, ways: int) -> Floats:
    """What combining the blocks of so many devices takes: each is read, the result is written."""
    source, into = program.buffers[step.source], program.buffers[step.into]
    elements = volumes(program.mesh, Tiling(into.tiling.cut, step.split)).astype(np.float64)
    traffic = elements * (ways * source.item + into.item)
    return compute_seconds(machine, (ways - 1) * len(source.types) * elements, traffic)

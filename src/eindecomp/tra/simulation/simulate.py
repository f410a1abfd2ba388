"""Simulates a program on a machine: one pass over what devices do, all of them at once.

`Clocks` say when every device and its links are free, and when communication under way ends. What
happens is recorded with its cause: what a device waited for before it could begin. Followed back
from the last end, causes make the critical path of a `SimulatedRun`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from eindecomp.above import from_above
from eindecomp.errors import InputError
from eindecomp.layout.tiling import coordinates
from eindecomp.planner.costs.collectives import Level, levels_of
from eindecomp.planner.costs.machine import Machine
from eindecomp.solve.problem.arrays import Floats, Ints, Mask
from eindecomp.tra.program.overlap import StepPart, overlapped
from eindecomp.tra.program.program import Program
from eindecomp.tra.program.steps import Move, Step, kind_of, used_by
from eindecomp.tra.simulation.durations import Durations, TimedPhase
from eindecomp.tra.simulation.network import Network

MOST_DEVICES = 1 << 13
NOTHING = -1
"""The cause of what begins at once."""


@dataclass(frozen=True, slots=True, eq=False)
class StepRecord:
    """A kernel call or a phase, on all devices."""

    step: int
    begin: Floats
    """When a device could begin; in a phase it then waits for its peers."""
    end: Floats
    cause: Ints
    """What ended when the device could begin: `record * devices + device`."""
    seconds: Floats
    """What it took after all peers were ready."""
    phase: TimedPhase | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LevelUse:
    """The links of one level: bytes by device, and the seconds that the fullest link is busy."""

    name: str
    received: Ints
    sent: Ints
    busy: float

    @property
    def bytes(self) -> int:
        """All bytes that cross the level."""
        return int(self.received.sum())


@dataclass(frozen=True, slots=True)
class PathStep:
    """A step of the critical path."""

    vertex: str
    kind: str
    device: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SimulatedTask:
    """What one device does for a while; kernels have row 0, phases the rows after it."""

    vertex: str
    kind: str
    row: int
    start: float
    end: float


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedRun:
    """How long a plan takes on a machine, and where the time goes.

    For every device `computing`, `exposed` and `idle` add up to `seconds`.

    Attributes:
        seconds: How long the run takes, such as `0.25`.
        computing: By device, the seconds in which it computes, such as `computing[0]`.
        exposed: By device, the seconds in which it waits for what others send, and for them to be
            ready, such as `exposed[0]`.
        idle: By device, the seconds after its last step, such as `idle[0]`.
        levels: What crosses each level of the mesh, such as `levels[0].bytes`.
        program: What was simulated, with `program.steps`.
        records: When each step began and ended, such as `records[0]`.

    Examples:
        >>> import eindecomp as ed
        >>> graph = ed.parse("input X[i: 8, j: 8]\\nZ[i] <- sum X[i,j]\\noutput Z")
        >>> ed.simulate(ed.plan(graph, 2), "cpu-cluster").devices
        2
    """

    seconds: float
    computing: Floats
    exposed: Floats
    idle: Floats
    levels: tuple[LevelUse, ...]
    program: Program
    records: Sequence[StepRecord]

    @property
    def devices(self) -> int:
        """How many devices the plan is for."""
        return self.program.devices

    @property
    def bytes_moved(self) -> int:
        """All bytes that devices receive: those of the plan."""
        return sum(level.bytes for level in self.levels)

    @cached_property
    def critical_path(self) -> tuple[PathStep, ...]:
        """The steps that decide how long it takes, first to last; they add up to `seconds`."""
        path = critical_path(self.records)
        return tuple(PathStep(*self._named(step), device, time) for step, device, time in path)

    def tasks(self, device: int) -> Iterator[SimulatedTask]:
        """What a device does, as a trace shows it.

        Args:
            device: Its number, such as `0`.
        """
        at = tuple(coordinates(self.program.mesh, device))
        for record in self.records:
            end, seconds = float(record.end[at]), float(record.seconds[at])
            phase = record.phase
            if phase is None:
                yield SimulatedTask(*self._named(record.step), 0, end - seconds, end)
            elif phase.takes_part[at]:
                used = (phase.received + phase.sent).reshape(len(self.levels), -1).any(axis=1)
                row = 1 + int(used.argmax())
                yield SimulatedTask(*self._named(record.step), row, end - seconds, end)

    def trace(self, path: str | Path, devices: Sequence[int] = (0,)) -> None:
        """Write a trace for Perfetto or Chrome, with the rows of some devices.

        Args:
            path: The file, such as `"trace.json"`.
            devices: Their numbers, such as `(0, 1)`.
        """
        from_above("show.simulated").write_trace(self, path, devices)

    def __repr__(self) -> str:
        took = f"{self.seconds:.3g} s, {self.bytes_moved} bytes moved"
        return f"<SimulatedRun of {self.devices} devices: {took}>"

    def __str__(self) -> str:
        return from_above("show.simulated").table_of(self)

    def _named(self, number: int) -> tuple[str, str]:
        """The vertex for which a step is, and what it is called."""
        step: Step = self.program.steps[number]
        kind = str(step.pattern) if isinstance(step, Move) else kind_of(step)
        made = self.program.buffers[used_by(step)[-1]].tensor  # a fill has no vertex
        return getattr(step, "vertex", made), kind


def critical_path(records: Sequence[StepRecord]) -> list[tuple[int, int, float]]:
    """The steps that decide how long a run takes, first to last: step, device and seconds.

    The device is the one that was waited for; the seconds add up to what the run takes.
    """
    if not records:
        return []
    shape, devices = records[0].end.shape, records[0].end.size
    ends = np.array([record.end.max() for record in records])
    number = int(ends.argmax())
    device, until = int(records[number].end.argmax()), float(ends[number])
    path: list[tuple[int, int, float]] = []
    while True:
        record = records[number]
        begin = record.begin.reshape(-1)
        phase = record.phase
        if phase is not None and phase.takes_part.reshape(-1)[device]:
            peers = phase.peers.of(device, shape)
            peers = peers[phase.takes_part.reshape(-1)[peers]]
            device = int(peers[begin[peers].argmax()])
        path.append((record.step, device, until - float(begin[device])))
        until = float(begin[device])
        cause = int(record.cause.reshape(-1)[device])
        if cause == NOTHING:
            return path[::-1]
        number, device = divmod(cause, devices)


def simulate_program(
    program: Program,
    machine: Machine,
    network: Network | None = None,
    *,
    overlap: float | None = None,
) -> SimulatedRun:
    """How long a program takes; without a network, collectives have the machine's rounds.

    With an `overlap`, which is the machine's if none is given, communication begins and is waited
    for where engines do so that overlap; without it, steps are carried out one by one.
    """
    if program.devices > MOST_DEVICES:
        raise InputError(f"at most {MOST_DEVICES} devices are simulated, not {program.devices}")
    network = Network(machine.rounds, machine.rounds) if network is None else network
    beside = machine.overlap if overlap is None else float(overlap)
    mesh, levels = program.mesh, levels_of(program.mesh, machine)
    durations = Durations(program, machine, levels, network)
    shared: list[tuple[int, ...]] = [()] * len(levels)
    if network.cards == "node":
        shared = [tuple(range(level.axes[-1] + 1, len(mesh.sizes))) for level in levels]
    clocks = Clocks(mesh.sizes, shared, beside)
    parts = overlapped(program) if beside else map(StepPart, range(len(program.steps)))
    for part in parts:
        duration = durations.of(program.steps[part.step])
        if isinstance(duration, tuple):
            if part.begins:
                clocks.begin(part.step, duration)
            if part.ends:
                clocks.end(part.step)
        elif duration is not None:
            clocks.kernel(part.step, duration)
    return _run_by(clocks, program, levels)


def _run_by(clocks: Clocks, program: Program, levels: Sequence[Level]) -> SimulatedRun:
    """The run that the clocks have seen, for all devices."""
    shape = clocks.shape
    computing = np.zeros(shape)
    received = np.zeros((len(levels), *shape), dtype=np.int64)
    sent, busy = np.zeros_like(received), np.zeros((2, len(levels), *shape))
    for record in clocks.records:
        if record.phase is None:
            computing += record.seconds
        else:
            received += record.phase.received
            sent += record.phase.sent
            busy += np.stack([record.phase.sending, record.phase.receiving])
    seconds = float(clocks.queue.max())

    uses = tuple(
        LevelUse(str(level), received[k].ravel(), sent[k].ravel(), float(busy[:, k].max()))
        for k, level in enumerate(levels)
    )
    times = computing.ravel(), clocks.waited.ravel(), (seconds - clocks.queue).ravel()
    return SimulatedRun(seconds, *times, uses, program, clocks.records)


class Clocks:
    """The state of a simulation between two steps, for devices in the mesh's shape."""

    def __init__(
        self, shape: tuple[int, ...], shared: Sequence[tuple[int, ...]], beside: float = 1.0
    ) -> None:
        self.shape = shape
        self.beside = beside
        """The fraction of computing beside which communication goes on."""
        self.shared = shared
        """For each level the axes of the devices that share a link."""
        self.records: list[StepRecord] = []
        self.number = np.arange(prod(shape), dtype=np.int64).reshape(shape)
        self.queue, self.queue_by = self._new()
        """When a device has done what came before, and after what."""
        self.links = {(level, way): self._new() for level in range(len(shared)) for way in (0, 1)}
        """The injection (0) and ejection links (1) of each level: free when, and after what."""
        self.under_way: dict[int, tuple[Floats, Ints]] = {}
        """When steps that have begun end, and with what."""
        self.computed = np.zeros(shape)
        """The seconds in which each device has computed, and `before` each step under way."""
        self.before: dict[int, Floats] = {}
        self.waited = np.zeros(shape)

    def _new(self) -> tuple[Any, Any]:
        return np.zeros(self.shape), np.full(self.shape, NOTHING, dtype=np.int64)

    def kernel(self, step: int, seconds: Floats) -> None:
        """A kernel call on every device, after what came before it."""
        begin, cause = self.queue, self.queue_by
        end = begin + seconds
        self.computed = self.computed + seconds
        record = StepRecord(step, begin, end, cause, seconds)
        self.queue, self.queue_by = end, self._recorded(record)

    def begin(self, step: int, phases: Sequence[TimedPhase]) -> None:
        """A communication step begins: from then on it runs phase after phase beside kernels."""
        made = self.queue, self.queue_by
        for phase in phases:
            made = self._phase(step, phase, *made)
        self.under_way[step], self.before[step] = made, self.computed

    def end(self, step: int) -> None:
        """Every device waits until a step that has begun is over."""
        before, (end, by) = self.queue, self.under_way.pop(step)
        delay = (1 - self.beside) * (self.computed - self.before.pop(step))
        end = end + delay
        if delay.any():
            last = max(k for k, record in enumerate(self.records) if record.step == step)
            record = self.records[last]
            self.records[last] = replace(record, end=record.end + delay)
        self.queue, self.queue_by = _later(before, self.queue_by, end, by)
        self.waited += self.queue - before

    def _phase(self, step: int, phase: TimedPhase, ready: Floats, by: Ints) -> tuple[Any, Any]:
        begin, cause = ready, by
        amounts = {(k, way): (phase.sent, phase.received)[way][k] for k, way in self.links}
        for place, amount in amounts.items():
            if amount.any():
                begin, cause = _later(begin, cause, *self.links[place], where=amount > 0)
        together = phase.peers.latest(np.where(phase.takes_part, begin, -np.inf))
        end = np.where(phase.takes_part, together + phase.seconds, ready)
        made = self._recorded(StepRecord(step, begin, end, cause, phase.seconds, phase))
        for (level, way), amount in amounts.items():
            if amount.any():
                until = together + (phase.sending, phase.receiving)[way][level]
                self._hold(level, way, amount > 0, until, made)
        return end, made

    def _hold(self, level: int, way: int, taken: Mask, until: Floats, made: Ints) -> None:
        """Take some links until a time; what devices share is taken for all of them."""
        free, by = self.links[level, way]
        free, by = np.where(taken, until, free), np.where(taken, made, by)
        axes = self.shared[level]
        if axes:
            last = free.max(axis=axes, keepdims=True)
            by = np.where(free == last, by, NOTHING).max(axis=axes, keepdims=True)
            free, by = (np.broadcast_to(each, self.shape) for each in (last, by))
        self.links[level, way] = free, by

    def _recorded(self, record: StepRecord) -> Ints:
        self.records.append(record)
        return (len(self.records) - 1) * self.number.size + self.number


def _later(
    time: Floats, cause: Ints, other: Floats, by: Ints, where: Any = True
) -> tuple[Floats, Ints]:
    """The later of two times with what it is caused by."""
    later = (other > time) & where
    return np.where(later, other, time), np.where(later, by, cause)

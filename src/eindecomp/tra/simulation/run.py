"""`SimulatedRun`: what a simulation found.

What happens is recorded with its cause: what a device waited for before it could begin. Followed
back from the last end, causes make the critical path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from eindecomp.above import from_above
from eindecomp.layout.tiling import coordinates
from eindecomp.solve.problem.arrays import Floats, Ints
from eindecomp.tra.program.program import Program
from eindecomp.tra.program.steps import Move, Step, kind_of
from eindecomp.tra.simulation.durations import TimedPhase

NOTHING = -1
"""The cause of what begins at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Record:
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
    records: Sequence[Record]

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
        return tuple(
            PathStep(*self._named(step), device, seconds)
            for step, device, seconds in critical_path(self.records)
        )

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
        vertex: str | None = getattr(step, "vertex", None)
        if vertex is None:
            into: int = getattr(step, "into")  # noqa: B009 - a fill, which has no vertex
            vertex = self.program.buffers[into].tensor
        return vertex, kind


def critical_path(records: Sequence[Record]) -> list[tuple[int, int, float]]:
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

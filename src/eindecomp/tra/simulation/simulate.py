"""Simulates a program on a machine: one pass over what devices do, all of them at once.

`Clocks` say when every device and its links are free, and when communication under way ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from eindecomp.errors import InputError
from eindecomp.planner.costs.machine import Machine
from eindecomp.solve.problem.arrays import Floats, Ints
from eindecomp.tra.program.overlap import StepPart, overlapped
from eindecomp.tra.program.program import Program
from eindecomp.tra.simulation.durations import Durations, TimedPhase
from eindecomp.tra.simulation.network import Level, Network, levels_of
from eindecomp.tra.simulation.run import NOTHING, LevelUse, Record, SimulatedRun

MOST_DEVICES = 1 << 13
_DEFAULT = Network()


def simulate_program(
    program: Program, machine: Machine, network: Network = _DEFAULT, *, overlap: bool = True
) -> SimulatedRun:
    """How long a program takes.

    With `overlap`, communication begins and is waited for where engines do so that overlap; without
    it, steps are carried out one by one.
    """
    if program.devices > MOST_DEVICES:
        raise InputError(f"at most {MOST_DEVICES} devices are simulated, not {program.devices}")
    mesh, levels = program.mesh, levels_of(program.mesh, machine)
    durations = Durations(program, machine, levels, network)
    shared: list[tuple[int, ...]] = [()] * len(levels)
    if network.cards == "node":
        shared = [tuple(range(level.axes[-1] + 1, len(mesh.sizes))) for level in levels]
    clocks = Clocks(mesh.sizes, shared)
    parts = overlapped(program) if overlap else map(StepPart, range(len(program.steps)))
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
    return SimulatedRun(
        seconds,
        computing.ravel(),
        clocks.waited.ravel(),
        (seconds - clocks.queue).ravel(),
        uses,
        program,
        clocks.records,
    )


class Clocks:
    """The state of a simulation between two steps, for devices in the mesh's shape."""

    def __init__(self, shape: tuple[int, ...], shared: Sequence[tuple[int, ...]]) -> None:
        self.shape = shape
        self.shared = shared
        """For each level the axes of the devices that share a link."""
        self.records: list[Record] = []
        self.number = np.arange(prod(shape), dtype=np.int64).reshape(shape)
        self.queue, self.queue_by = self._new()
        """When a device has done what came before, and after what."""
        self.links = [(self._new(), self._new()) for _ in shared]
        """The injection and the ejection link of each level: free when, and after what."""
        self.under_way: dict[int, tuple[Floats, Ints]] = {}
        """When steps that have begun end, and with what."""
        self.waited = np.zeros(shape)

    def _new(self) -> tuple[Any, Any]:
        return np.zeros(self.shape), np.full(self.shape, NOTHING, dtype=np.int64)

    def kernel(self, step: int, seconds: Floats) -> None:
        """A kernel call on every device, after what came before it."""
        begin, cause = self.queue, self.queue_by
        end = begin + seconds
        self.queue, self.queue_by = end, self._recorded(Record(step, begin, end, cause, seconds))

    def begin(self, step: int, phases: Sequence[TimedPhase]) -> None:
        """A communication step begins: from then on it runs phase after phase beside kernels."""
        made = self.queue, self.queue_by
        for phase in phases:
            made = self._phase(step, phase, *made)
        self.under_way[step] = made

    def end(self, step: int) -> None:
        """Every device waits until a step that has begun is over."""
        before = self.queue
        self.queue, self.queue_by = _later(before, self.queue_by, *self.under_way.pop(step))
        self.waited += self.queue - before

    def _phase(self, step: int, phase: TimedPhase, ready: Floats, by: Ints) -> tuple[Any, Any]:
        begin, cause = ready, by
        for number in range(len(self.links)):
            for link, amount in zip(self.links[number], (phase.sent, phase.received), strict=True):
                if amount[number].any():
                    begin, cause = _later(begin, cause, *link, where=amount[number] > 0)
        together = phase.peers.latest(np.where(phase.takes_part, begin, -np.inf))
        end = np.where(phase.takes_part, together + phase.seconds, ready)
        made = self._recorded(Record(step, begin, end, cause, phase.seconds, phase))
        for number in range(len(self.links)):
            self._hold(number, 0, phase.sent[number], together + phase.sending[number], made)
            self._hold(number, 1, phase.received[number], together + phase.receiving[number], made)
        return end, made

    def _hold(self, level: int, way: int, amount: Ints, until: Floats, made: Ints) -> None:
        """Take the links that carry something, those that devices share for all of these."""
        if not amount.any():
            return
        links = list(self.links[level])
        free, by = links[way]
        free, by = np.where(amount > 0, until, free), np.where(amount > 0, made, by)
        axes = self.shared[level]
        if axes:
            last = free.max(axis=axes, keepdims=True)
            by = np.where(free == last, by, NOTHING).max(axis=axes, keepdims=True)
            free, by = (np.broadcast_to(each, self.shape) for each in (last, by))
        links[way] = free, by
        self.links[level] = links[0], links[1]

    def _recorded(self, record: Record) -> Ints:
        self.records.append(record)
        return (len(self.records) - 1) * self.number.size + self.number


def _later(
    time: Floats, cause: Ints, other: Floats, by: Ints, where: Any = True
) -> tuple[Floats, Ints]:
    """The later of two times with what it is caused by."""
    later = (other > time) & where
    return np.where(later, other, time), np.where(later, by, cause)

"""Clocks: when every device and its links are free, and when communication under way ends.

What happens is recorded with its cause: what a device waited for before it could begin. Followed
back from the last end, causes make the critical path.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eindecomp.tra.simulation.durations import TimedPhase

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

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


class Clocks:
    """The state of a simulation between two steps, for devices in the mesh's shape."""

    def __init__(self, shape: tuple[int, ...], shared: Sequence[tuple[int, ...] | None]) -> None:
        self.shape = shape
        self.shared = shared
        """For each level the axes of devices that share a link; None where nobody does."""
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

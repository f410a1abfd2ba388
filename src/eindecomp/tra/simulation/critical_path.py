"""The critical path: from the last end back to the beginning, what had to be waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.tra.simulation.clocks import NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.tra.simulation.clocks import Record


@dataclass(frozen=True, slots=True)
class OnPath:
    """A step on the path, the device that it was waited for on, and for how long."""

    step: int
    device: int
    seconds: float


def critical_path(records: Sequence[Record]) -> list[OnPath]:
    """The steps that decide how long a run takes, first to last; their seconds add up to it."""
    if not records:
        return []
    shape, devices = records[0].end.shape, records[0].end.size
    ends = np.array([record.end.max() for record in records])
    number = int(ends.argmax())
    device, until = int(records[number].end.argmax()), float(ends[number])
    path: list[OnPath] = []
    while True:
        record = records[number]
        begin = record.begin.reshape(-1)
        phase = record.phase
        if phase is not None and phase.takes_part.reshape(-1)[device]:
            peers = phase.peers.of(device, shape)
            peers = peers[phase.takes_part.reshape(-1)[peers]]
            device = int(peers[begin[peers].argmax()])
        path.append(OnPath(record.step, device, until - float(begin[device])))
        until = float(begin[device])
        cause = int(record.cause.reshape(-1)[device])
        if cause == NOTHING:
            return path[::-1]
        number, device = divmod(cause, devices)

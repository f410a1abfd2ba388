"""Devices that do the same at the same time, simulated as one.

Where everything that steps take is equal along a mesh axis, so are all times: peers are found along
axes, and those along this one are ready together. Pairs of peers follow no axes; a program that has
any is simulated on one device if all devices are alike, and else on all of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.tra.simulation.durations import TimedPhase
from eindecomp.tra.simulation.phases import Group, Pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Duration = NDArray[np.float64] | tuple[TimedPhase, ...] | None
    """Seconds of kernel calls, the phases of an exchange, or nothing."""


def equal_axes(durations: Iterable[Duration], axes: int) -> frozenset[int]:
    """The axes along which devices are simulated as one."""
    equal = set(range(axes))
    paired = False
    for duration in {id(each): each for each in durations}.values():
        for array in _arrays(duration):
            first = array.ndim - axes
            equal = {a for a in equal if _is_constant(array, first + a)}
        if isinstance(duration, tuple):
            paired = paired or any(isinstance(phase.peers, Pairs) for phase in duration)
    return frozenset(equal) if not paired or len(equal) == axes else frozenset()


def merged(durations: Sequence[Duration], axes: int, equal: frozenset[int]) -> list[Duration]:
    """The durations with one device in place of those that differ along equal axes."""
    made: dict[int, Duration] = {}
    for duration in durations:
        if id(duration) not in made:
            made[id(duration)] = _merge(duration, axes, equal)
    return [made[id(duration)] for duration in durations]


def _merge(duration: Duration, axes: int, equal: frozenset[int]) -> Duration:
    if not isinstance(duration, tuple):
        return duration if duration is None else _first(duration, axes, equal)
    return tuple(_merged_phase(phase, axes, equal) for phase in duration)


def _merged_phase(phase: TimedPhase, axes: int, equal: frozenset[int]) -> TimedPhase:
    names = ("seconds", "sending", "receiving", "received", "sent", "takes_part")
    arrays = {name: _first(getattr(phase, name), axes, equal) for name in names}
    peers = Group(()) if isinstance(phase.peers, Pairs) and equal else phase.peers
    return replace(phase, **arrays, peers=peers)


def _arrays(duration: Duration) -> list[Any]:
    if duration is None:
        return []
    if not isinstance(duration, tuple):
        return [duration]
    return [a for p in duration for a in (p.seconds, p.sending, p.receiving, p.received, p.sent)]


def _is_constant(array: Any, axis: int) -> bool:
    return bool((array == np.take(array, [0], axis=axis)).all())


def _first(array: Any, axes: int, equal: frozenset[int]) -> Any:
    before = array.ndim - axes
    index = [slice(None)] * before + [slice(1) if a in equal else slice(None) for a in range(axes)]
    return array[tuple(index)]

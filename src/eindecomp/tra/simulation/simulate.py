"""Simulates a program on a machine: one pass over what devices do, all of them at once.

Devices that do the same at the same time are simulated as one. Where everything that steps take is
equal along a mesh axis, so are all times: peers are found along axes, and those along this one are
ready together. Pairs of peers follow no axes; a program that has any is simulated on one device if
all devices are alike, and else on all of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.errors import InputError
from eindecomp.tra.program.overlap import Begin, End, Whole, overlapped
from eindecomp.tra.simulation.clocks import Clocks
from eindecomp.tra.simulation.durations import Durations, TimedPhase
from eindecomp.tra.simulation.network import Group, Network, Pairs, levels_of
from eindecomp.tra.simulation.run import LevelUse, SimulatedRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eindecomp.planner.costs.machine import Machine
    from eindecomp.tra.program.overlap import Action
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.simulation.durations import Duration
    from eindecomp.tra.simulation.network import Level

MOST_DEVICES = 1 << 13
_DEFAULT = Network()


def simulate_program(
    program: Program,
    machine: Machine,
    network: Network = _DEFAULT,
    *,
    overlap: bool = True,
    symmetry: bool = True,
) -> SimulatedRun:
    """How long a program takes; without `symmetry` every device is simulated.

    With `overlap`, communication begins and is waited for where engines do so that overlap; without
    it, steps are carried out one by one.
    """
    if program.devices > MOST_DEVICES:
        raise InputError(f"at most {MOST_DEVICES} devices are simulated, not {program.devices}")
    mesh, levels = program.mesh, levels_of(program.mesh, machine)
    made = Durations(program, machine, levels, network)
    durations = [made.of(step) for step in program.steps]
    axes = len(mesh.sizes)
    equal = equal_axes(durations, axes) if symmetry else frozenset[int]()
    durations = merged(durations, axes, equal)
    shape = tuple(1 if a in equal else size for a, size in enumerate(mesh.sizes))
    clocks = Clocks(shape, _shared(levels, network, axes))
    actions = overlapped(program) if overlap else map(Whole, range(len(program.steps)))
    for action in actions:
        _carry_out(clocks, action, durations[action.step])
    return _found(program, levels, clocks)


def _shared(levels: Sequence[Level], network: Network, axes: int) -> list[tuple[int, ...] | None]:
    """For each level the axes of the devices that share a link."""
    if network.cards == "device":
        return [None] * len(levels)
    return [tuple(range(level.axes[-1] + 1, axes)) or None for level in levels]


def _carry_out(clocks: Clocks, action: Action, duration: Duration) -> None:
    """What all devices do next: a kernel call, or the beginning or the end of communication."""
    if isinstance(duration, tuple):
        if isinstance(action, Whole | Begin):
            clocks.begin(action.step, duration)
        if isinstance(action, Whole | End):
            clocks.end(action.step)
    elif duration is not None:
        clocks.kernel(action.step, duration)


def _found(program: Program, levels: Sequence[Level], clocks: Clocks) -> SimulatedRun:
    """What the clocks say in the end, for all devices."""
    sizes, shape = program.mesh.sizes, clocks.shape
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

    def on_all(array: Any) -> Any:
        return np.broadcast_to(array, sizes).reshape(-1)

    uses = tuple(
        LevelUse(str(level), on_all(received[k]), on_all(sent[k]), float(busy[:, k].max()))
        for k, level in enumerate(levels)
    )
    return SimulatedRun(
        seconds,
        on_all(computing),
        on_all(clocks.waited),
        on_all(seconds - clocks.queue),
        uses,
        clocks.number.size,
        program,
        clocks.records,
        shape,
    )


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

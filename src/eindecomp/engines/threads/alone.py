"""Brief programs: the calling thread carries all calls out, with none of what threads need.

Tiles of one vertex are computed at once where that is worth it: by the kernel library, which hands
them to other cores in a fraction of the time that Python takes to.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.threads.bind import bind_together
from eindecomp.engines.threads.estimate import APART, BRIEF, SHORT, TOGETHER
from eindecomp.engines.threads.forking import GATE
from eindecomp.engines.threads.job import named
from eindecomp.kernels.compilations import record_compilations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.engines.spare import Spare
    from eindecomp.engines.threads.bind import Bound
    from eindecomp.engines.threads.call import KernelCall
    from eindecomp.engines.threads.memory import Key, Where
    from eindecomp.engines.threads.schedule import Schedule
    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]

_LEFT = 0.02
"""Of a program's time, what may be left to one thread."""


class OwnMemory:
    """The arrays of a run that only one thread sees: nothing is counted or locked."""

    __slots__ = ("arrays", "scalars", "shapes", "spare")

    def __init__(
        self,
        arrays: dict[Key, Any],
        scalars: Sequence[object],
        shapes: Mapping[Key, tuple[tuple[int, ...], DType]],
        spare: Spare | None = None,
    ) -> None:
        self.arrays, self.scalars, self.shapes, self.spare = arrays, scalars, shapes, spare

    def read(self, key: Key, where: Where) -> Array:
        """A tile."""
        return self.arrays[key] if where is None else self.arrays[key][where]

    def read_rows(self, key: Key, where: Where, axis: int, index: Array) -> tuple[Array, Array]:
        """A tile to look rows up in, and the index to do so."""
        del axis
        return self.read(key, where), index

    def write(self, key: Key, where: Where) -> Array:
        """The place of a tile."""
        array = self.arrays.get(key)
        if array is None:
            make = np.empty if self.spare is None else self.spare.make
            array = self.arrays[key] = make(*self.shapes[key])
        return array if where is None else array[where]


@dataclass(frozen=True, slots=True)
class CallGroup:
    """Calls that are carried out together, often only one."""

    run: Bound
    calls: tuple[KernelCall, ...]
    dropped: tuple[Key, ...]
    """The arrays that nobody uses afterwards."""


def steps_of(schedule: Schedule, bound: Sequence[Bound]) -> tuple[CallGroup, ...]:
    """The calls of a schedule in order, with those of a large vertex at once."""
    graph, seconds = schedule.graph, schedule.seconds_by_vertex
    least = APART if schedule.seconds >= TOGETHER else inf
    numbered = zip(schedule.calls, bound, schedule.dropped_after, strict=True)
    found: list[CallGroup] = []
    for vertex, group in groupby(numbered, key=lambda each: each[0].vertex):
        own = [*group]
        calls = tuple(call for call, _, _ in own)
        if len(own) > 1 and seconds[vertex] >= least and all(map(_is_whole, calls)):
            dropped = tuple(key for _, _, keys in own for key in keys)
            found.append(CallGroup(bind_together(graph, calls), calls, dropped))
        else:
            found += [CallGroup(run, (call,), keys) for call, run, keys in own]
    return tuple(found)


def _is_whole(call: KernelCall) -> bool:
    return call.kind == "compute" and not call.is_partial


def is_for_one(schedule: Schedule, steps: Sequence[CallGroup]) -> bool:
    """Whether the calling thread is to carry calls out: if little is left that others could do."""
    if schedule.is_short:
        return True
    seconds = schedule.seconds_by_vertex
    together = {step.calls[0].vertex for step in steps if len(step.calls) > 1}
    left = (own for name, own in seconds.items() if name not in together and own >= APART)
    return max(seconds.values()) < BRIEF and sum(left) < max(SHORT, _LEFT * schedule.seconds)


def run_alone(
    schedule: Schedule,
    steps: Sequence[CallGroup],
    arrays: dict[Key, Any],
    scalars: Sequence[object],
    spare: Spare | None = None,
) -> dict[Key, Any]:
    """Carry all calls out; the arrays that are left, outputs among them."""
    memory = OwnMemory(arrays, scalars, schedule.shapes, spare)
    given = frozenset(arrays)
    mark = GATE.join()
    done = 0
    try:
        # What a run within another one compiles is its own matter.
        with np.errstate(all="ignore"), record_compilations():
            for step in steps:
                GATE.enter(mark)
                step.run(memory)
                mark.at_work = False
                for key in step.dropped:
                    array = arrays.pop(key)
                    if spare is not None and key not in given:
                        spare.give(array)
                done += 1
    except Exception as error:
        raise named(error, steps[done].calls[0], schedule) from error
    finally:
        GATE.leave(mark)
    return arrays

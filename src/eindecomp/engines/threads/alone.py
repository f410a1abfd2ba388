"""Short programs: the calling thread carries all calls out, with none of what threads need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.threads.forking import GATE
from eindecomp.engines.threads.job import named
from eindecomp.kernels.compilations import record_compilations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.engines.threads.bind import Bound
    from eindecomp.engines.threads.memory import Key, Where
    from eindecomp.engines.threads.schedule import Schedule
    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]


class OwnMemory:
    """The arrays of a run that only one thread sees: nothing is counted or locked."""

    __slots__ = ("arrays", "scalars", "shapes")

    def __init__(
        self,
        arrays: dict[Key, Any],
        scalars: Sequence[object],
        shapes: Mapping[Key, tuple[tuple[int, ...], DType]],
    ) -> None:
        self.arrays, self.scalars, self.shapes = arrays, scalars, shapes

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
            array = self.arrays[key] = np.empty(*self.shapes[key])
        return array if where is None else array[where]


def run_alone(
    schedule: Schedule, bound: Sequence[Bound], arrays: dict[Key, Any], scalars: Sequence[object]
) -> dict[Key, Any]:
    """Carry all calls out; the arrays that are left, outputs among them."""
    memory = OwnMemory(arrays, scalars, schedule.shapes)
    mark = GATE.join()
    done = 0
    try:
        # What a run within another one compiles is its own matter.
        with np.errstate(all="ignore"), record_compilations():
            for run, dropped in zip(bound, schedule.dropped_after, strict=True):
                GATE.enter(mark)
                run(memory)
                mark.at_work = False
                for key in dropped:
                    del arrays[key]
                done += 1
    except Exception as error:
        raise named(error, schedule.calls[done], schedule) from error
    finally:
        GATE.leave(mark)
    return arrays

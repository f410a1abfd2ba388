"""`ThreadsEngine`: runs plans on the cores of this machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.result import Result, Stats
from eindecomp.engines.space import check_space
from eindecomp.engines.spare import Spare
from eindecomp.engines.tensor import Tensor, placing_bytes
from eindecomp.engines.threads.alone import is_for_one, run_alone
from eindecomp.engines.threads.estimate import BRIEF
from eindecomp.engines.threads.job import Job
from eindecomp.engines.threads.memory import Memory, is_in_memory
from eindecomp.engines.threads.pool import WORKERS
from eindecomp.engines.threads.prepare import ALONE, PASSES, prepared
from eindecomp.engines.threads.repeat import repeated
from eindecomp.engines.threads.report import RunReport
from eindecomp.engines.threads.space import largest_load
from eindecomp.errors import EinDecompError, InputError
from eindecomp.graph.checks import whole_number
from eindecomp.kernels.cores import cores
from eindecomp.kernels.cpu.fork_join import HELPERS
from eindecomp.kernels.cpu.products.blas_threads import one_thread_each

if TYPE_CHECKING:
    from eindecomp.engines.engine import Listener
    from eindecomp.engines.threads.memory import Key
    from eindecomp.engines.threads.prepare import ReadyToRun
    from eindecomp.engines.threads.schedule import Schedule
    from eindecomp.planner.plan import Plan

    Array = np.ndarray[Any, Any]

NAME = "threads"
_WORTH_REPEATING = (2, 20, 200)
"""Runs after which it is looked at how to repeat the last one: who runs twice runs often."""


class ThreadsEngine:
    """Runs plans on threads that share memory; devices are more than threads if need be.

    Without `workers` there is a thread for each core, and one alone for what is small. A brief
    program is computed by the calling thread, and by other cores for its large vertices. Without
    `shortcuts` every tile is computed as the plan cuts it; with them tiles are joined where memory
    is shared, which rounds differently.
    """

    name = NAME

    def __init__(self, workers: int | None = None, shortcuts: bool = True) -> None:
        self.workers = None if workers is None else _workers(workers)
        if not isinstance(shortcuts, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"shortcuts must be true or false, not {shortcuts!r}")
        self.shortcuts = shortcuts

    def prepare(self, plan: Plan) -> ThreadsProgram:
        """Make a plan ready to run."""
        return ThreadsProgram(plan, self.workers, self.shortcuts)


@dataclass(slots=True)
class SharedArray:
    """The data of a tensor: one array that all threads read, whatever the layouts."""

    array: Any
    is_own: bool
    """Whether nobody else has it, so that it may be written to when it is donated."""

    def shared(self) -> Array:
        """The array, for somebody who may keep it."""
        self.is_own = False
        return self.array


class ThreadsProgram:
    """A plan made ready: its calls, and arrays that runs leave for the next."""

    def __init__(self, plan: Plan, workers: int | None, shortcuts: bool) -> None:
        self._plan, self._asked = plan, workers
        self._passes = PASSES if shortcuts else ()
        self._spare = Spare()
        self._ready: ReadyToRun | None = None
        self._alone: ReadyToRun | None = None
        """How the calling thread computes what is brief, if nobody listens."""
        if workers is None and shortcuts:
            brief = prepared(plan, ALONE)
            if is_for_one(brief.schedule, brief.steps):
                self._alone = brief
            is_as_planned = brief.schedule.graph is plan.graph
            if brief.schedule.seconds >= BRIEF and is_as_planned:  # nothing was cut otherwise
                self._ready = brief

    # `cached_property` holds a lock meanwhile, which a fork would leave locked in the child.
    @property
    def ready(self) -> ReadyToRun:
        """How threads compute the plan, tile by tile."""
        if self._ready is None:
            self._ready = prepared(self._plan, self._passes)
        return self._ready

    @property
    def schedule(self) -> Schedule:
        """The calls that a run carries out."""
        return self.ready.schedule

    def place(self, name: str, given: Any) -> Tensor:
        """Keep an input where it is: threads read the caller's memory."""
        ready = self._alone or self.ready
        data = SharedArray(given, is_own=False)
        if isinstance(given, Tensor):
            data = given.held()
            data.is_own = False  # two tensors have it now: giving one up must not touch the other
        array, mesh, tilings = data.array, ready.program.mesh, ready.wanted[name]
        return Tensor(name, array.shape, array.dtype, NAME, mesh, tilings, data, _gather)

    @property
    def workers(self) -> int:
        """How many threads take part."""
        usual = 1 if self.schedule.is_small else cores()
        return min(self._asked or usual, self.schedule.devices)

    def run(
        self,
        inputs: Mapping[str, Any],
        scalars: Mapping[str, Any],
        donated: Collection[str] = (),
        on_event: Listener | None = None,
    ) -> Result:
        """Carry the calls out."""
        # Whoever gives memory up runs again and again: what a run drops is kept for the next.
        spare = self._spare if donated else None
        result = None
        if self._alone is not None and on_event is None:
            result = self._run_alone(self._alone, inputs, scalars, spare)
        if result is None:
            result = self._run_threads(inputs, scalars, spare, on_event)
        for name in donated:
            data = inputs[name].held()
            if data.is_own:
                data.is_own = False  # it may have been given for several inputs
                self._spare.give(data.array)
        return result

    def _run_threads(
        self,
        inputs: Mapping[str, Any],
        scalars: Mapping[str, Any],
        spare: Spare | None,
        on_event: Listener | None,
    ) -> Result:
        """Let threads carry the calls out, tile by tile."""
        start = perf_counter()
        schedule, workers = self.schedule, self.workers
        arrays, placed = self._arrays(inputs)
        loads = workers * largest_load(schedule, arrays)
        check_space(schedule.graph, self.ready.space, loads, partial(_spare_bytes, spare))
        report = None if on_event is None else RunReport(schedule, on_event)
        on_free = None if report is None else report.freed
        memory = Memory(
            arrays, tuple(scalars.values()), schedule.shapes, schedule.uses, loads, on_free, spare
        )
        # One thread of BLAS's or many: for what is small that makes no difference.
        hold = nullcontext if workers == 1 and schedule.is_small else one_thread_each
        with hold():
            WORKERS.run(Job(schedule, self.ready.bound, memory, report, hold), workers)
        outputs = memory.outputs(self.ready.outputs)
        return self._result(self.ready, outputs, memory.peak, start, workers, placed)

    def _run_alone(
        self,
        ready: ReadyToRun,
        inputs: Mapping[str, Any],
        scalars: Mapping[str, Any],
        spare: Spare | None,
    ) -> Result | None:
        """Compute a brief program; None if its inputs are not all arrays in memory."""
        start = perf_counter()
        arrays: dict[Key, Any] = {}
        held = placed = 0
        for name, given in inputs.items():
            array = given
            if isinstance(given, Tensor):
                array = given.held().array
                if given.tilings is not ready.wanted[name]:
                    placed += placing_bytes(ready.program, name, given)
            if type(array) is not np.ndarray or not is_in_memory(array):
                return None
            arrays[name] = array
            held += array.nbytes
        values = tuple(scalars.values())
        again = ready.repeated
        if again is not None and (made := again.run(arrays, values, spare)) is not None:
            outputs = {name: made[key] for name, key in ready.outputs.items()}
            return self._result(ready, outputs, again.nbytes, start, ready.workers, placed)
        given_first = {**arrays}
        schedule, workers = ready.schedule, 1
        hold = nullcontext
        if ready.is_shared:
            HELPERS.rouse()
            workers, hold = ready.workers, one_thread_each
            check_space(schedule.graph, ready.space, 0, partial(_spare_bytes, spare))
        with hold():
            left = run_alone(schedule, ready.steps, arrays, values, spare)
        ready.runs += 1
        if ready.runs in _WORTH_REPEATING:
            ready.repeated = repeated(schedule, ready.steps, ready.outputs.values(), given_first)
        outputs = {
            name: np.array(left[key]) if key in inputs else left[key]
            for name, key in ready.outputs.items()
        }
        return self._result(ready, outputs, held + ready.space.bytes, start, workers, placed)

    def _result(
        self,
        ready: ReadyToRun,
        outputs: Mapping[str, Array],
        peak: int,
        start: float,
        workers: int,
        placed: int,
    ) -> Result:
        mesh = ready.program.mesh
        tensors: dict[str, Tensor] = {}
        for name, array in outputs.items():
            data = SharedArray(array, is_own=True)
            tensors[name] = Tensor(
                name, array.shape, array.dtype, NAME, mesh, ready.lies[name], data, _gather
            )
        seconds = perf_counter() - start
        return Result(tensors, partial(_stats, ready, seconds, peak, workers, placed))

    def _arrays(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """The arrays of all inputs, and what bringing tensors to where they are wanted moves."""
        arrays, ready = dict(inputs), self.ready
        placed = 0
        for name, given in inputs.items():
            if isinstance(given, Tensor):
                arrays[name] = given.held().array
                # What was placed for this plan, as weights are, has these very layouts.
                if given.tilings is not ready.wanted[name]:
                    placed += placing_bytes(ready.program, name, given)
        return arrays, placed

    def close(self) -> None:
        """Let go of the arrays that are kept for the next run."""
        self._spare = Spare()


def _stats(ready: ReadyToRun, seconds: float, peak: int, workers: int, placed: int) -> Stats:
    program, schedule = ready.program, ready.schedule
    return Stats(
        seconds,
        schedule.flops,
        program.moved,
        program.bytes_by_vertex,
        peak,
        schedule.tasks,
        workers,
        placed,
    )


def _gather(data: SharedArray) -> Array:
    return data.shared()


def _workers(given: object) -> int:
    try:
        count = whole_number(given, "workers")
    except EinDecompError:
        count = 0
    if count < 1:
        raise InputError(f"workers must be 1 or more, not {given!r}")
    return count


def _spare_bytes(spare: Spare | None) -> int:
    return 0 if spare is None else spare.nbytes

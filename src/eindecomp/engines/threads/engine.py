"""`ThreadsEngine`: runs plans on the cores of this machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import ref

from eindecomp.engines.placing import placing_bytes
from eindecomp.engines.result import Result, Stats
from eindecomp.engines.tensor import Tensor
from eindecomp.engines.threads.bind import bind
from eindecomp.engines.threads.job import Job
from eindecomp.engines.threads.memory import Memory
from eindecomp.engines.threads.passes import PASSES
from eindecomp.engines.threads.pool import WORKERS
from eindecomp.engines.threads.report import RunReport
from eindecomp.engines.threads.schedule import schedule
from eindecomp.engines.threads.space import check_space, largest_load, needed_space
from eindecomp.engines.threads.spare import Spare
from eindecomp.engines.threads.tiled import tile_program
from eindecomp.errors import EinDecompError, InputError
from eindecomp.graph.checks import whole_number
from eindecomp.kernels.cache import limit
from eindecomp.kernels.cores import cores
from eindecomp.kernels.cpu.products.blas_threads import one_thread_each
from eindecomp.tra.program.make import program_of

if TYPE_CHECKING:
    import numpy as np

    from eindecomp.engines.engine import Listener
    from eindecomp.engines.threads.bind import Bound
    from eindecomp.engines.threads.schedule import Schedule
    from eindecomp.planner.plan import Plan
    from eindecomp.tra.program.memory import Peak
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.tiling import Tiling

    Array = np.ndarray[Any, Any]

NAME = "threads"


class ThreadsEngine:
    """Runs plans on threads that share memory; devices are more than threads if need be.

    Without `workers` there is a thread for each core, and one alone for what is small.
    """

    name = NAME

    def __init__(self, workers: int | None = None) -> None:
        self.workers = None if workers is None else _workers(workers)

    def prepare(self, plan: Plan) -> ThreadsProgram:
        """Make a plan ready to run."""
        return ThreadsProgram(_prepared(plan), self.workers)


class _Ready:
    """What does not change from run to run; it does not hold the plan, which it is kept for."""

    def __init__(self, plan: Plan) -> None:
        limit()  # a setting that is wrong is no fault of the vertex whose kernel is compiled first
        self.program: Program = program_of(plan)
        tiled = tile_program(self.program)
        for each in PASSES:
            tiled = each(tiled)
        self.schedule: Schedule = schedule(tiled)
        graph = self.schedule.graph
        self.bound: tuple[Bound, ...] = tuple(bind(graph, call) for call in self.schedule.calls)
        self.outputs = {v.name: self.schedule.key_of(v.name) for v in graph.outputs}
        self.layouts = {
            name: tuple(buffer.tiling for buffer in buffers)
            for name, buffers in self.program.inputs.items()
        }

    @cached_property
    def space(self) -> Peak:
        """The most bytes that are held at once beside the inputs, and where."""
        return needed_space(self.schedule)


_KEPT: dict[int, tuple[ref[Any], _Ready]] = {}


def _prepared(plan: Plan) -> _Ready:
    """The program of a plan, made once for as long as the plan lives."""
    known = _KEPT.get(id(plan))
    if known is not None and known[0]() is plan:
        return known[1]
    ready = _Ready(plan)
    key = id(plan)
    _KEPT[key] = (ref(plan, lambda _: _KEPT.pop(key, None)), ready)
    return ready


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

    def __init__(self, ready: _Ready, workers: int | None) -> None:
        self.ready = ready
        self._asked = workers
        self._spare = Spare()

    @property
    def schedule(self) -> Schedule:
        """The calls that a run carries out."""
        return self.ready.schedule

    def place(self, name: str, given: Any) -> Tensor:
        """Keep an input where it is: threads read the caller's memory."""
        data = given.held() if isinstance(given, Tensor) else SharedArray(given, is_own=False)
        return self._tensor(name, self.ready.layouts[name], data)

    def _tensor(self, name: str, tilings: tuple[Tiling, ...], data: SharedArray) -> Tensor:
        vertex = self.schedule.graph[name]
        mesh = self.ready.program.mesh
        return Tensor(name, vertex.shape, vertex.dtype, NAME, mesh, tilings, data, _gather)

    @cached_property
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
        start = perf_counter()
        schedule, workers = self.schedule, self.workers
        arrays, placed = self._arrays(inputs)
        loads = workers * largest_load(schedule, arrays)
        # Whoever gives memory up runs again and again: what a run drops is kept for the next.
        spare = self._spare if donated else None
        check_space(schedule, self.ready.space, loads, 0 if spare is None else spare.nbytes)
        report = None if on_event is None else RunReport(schedule, on_event)
        on_free = None if report is None else report.freed
        memory = Memory(
            arrays, tuple(scalars.values()), schedule.shapes, schedule.uses, loads, on_free, spare
        )
        # One thread of BLAS's or many: for what is small that makes no difference.
        hold = nullcontext if workers == 1 and schedule.is_small else one_thread_each
        with hold():
            WORKERS.run(Job(schedule, self.ready.bound, memory, report, hold), workers)
        for name in donated:
            data = inputs[name].held()
            if data.is_own:
                self._spare.give(data.array)
        stats = Stats(
            perf_counter() - start,
            schedule.flops,
            schedule.moved,
            schedule.bytes_by_vertex,
            memory.peak,
            schedule.tasks,
            workers,
            placed,
        )
        return Result(self._outputs(memory), stats)

    def _arrays(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """The arrays of all inputs, and what bringing tensors to where they are wanted moves."""
        arrays, layouts = dict(inputs), self.ready.layouts
        placed = 0
        for name, given in inputs.items():
            if isinstance(given, Tensor):
                arrays[name] = given.held().array
                # What was placed for this plan, as weights are, has these very layouts.
                if given.tilings is not layouts[name]:
                    placed += placing_bytes(self.ready.program, name, given)
        return arrays, placed

    def _outputs(self, memory: Memory) -> dict[str, Tensor]:
        program = self.ready.program
        found = memory.outputs(self.ready.outputs)
        tensors: dict[str, Tensor] = {}
        for name, array in found.items():
            number = program.outputs.get(name)
            if number is None:  # an input: it lies as it was given
                tilings = self.ready.layouts[name]
            else:
                tilings = (program.buffers[number].tiling,)
            tensors[name] = self._tensor(name, tilings, SharedArray(array, is_own=True))
        return tensors

    def close(self) -> None:
        """Let go of the arrays that are kept for the next run."""
        self._spare = Spare()


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

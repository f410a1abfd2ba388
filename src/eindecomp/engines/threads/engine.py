"""`ThreadsEngine`: runs plans on the cores of this machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any
from weakref import ref

from eindecomp.engines.resources import Spare, check_space
from eindecomp.engines.result import ByName, Listener, Result, Stats
from eindecomp.engines.tensor import Tensor, placing_bytes
from eindecomp.engines.threads.memory import Memory, is_in_memory
from eindecomp.engines.threads.schedule import CallSchedule, schedule
from eindecomp.engines.threads.tiled import TOGETHER, cut_for_cores, tile_program
from eindecomp.engines.threads.walk import RunReport, Walk
from eindecomp.errors import InputError
from eindecomp.kernels.cache import limit
from eindecomp.kernels.cores import cores
from eindecomp.kernels.cpu.fork_join import HELPERS
from eindecomp.kernels.cpu.products.blas_libraries import one_thread_each
from eindecomp.lang.dtypes import Array
from eindecomp.layout.mesh import Mesh, is_whole
from eindecomp.layout.tiling import Tiling, uncut
from eindecomp.planner.plan import Plan
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import Peak, peak_of
from eindecomp.tra.program.program import Program

NAME = "threads"


class ThreadsEngine:
    """Runs plans on threads that share memory; there may be more devices than threads.

    Without `workers` there is a thread for each core, and only one for small programs. Without
    `shortcuts` every tile is computed as planned; with them tiles are joined or cut anew for the
    cores, which rounds differently.
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
    """The data of a tensor: one array that all threads read, whatever its layouts."""

    array: Any
    is_own: bool
    """Whether no caller refers to the array, so that it may be reused when it is donated."""

    def shared(self) -> Array:
        """The array, for a caller that may keep it."""
        self.is_own = False
        return self.array


class ReadyToRun:
    """What stays the same from run to run. It holds no reference to the plan that it is cached for.

    Tiles are cut anew for `threads` threads; for 0 they stay as planned.
    """

    def __init__(self, plan: Plan, threads: int) -> None:
        limit()  # a wrong setting is reported here, not as an error of the first vertex
        self.program: Program = program_of(plan)
        tiled = tile_program(self.program)
        if threads:
            tiled = cut_for_cores(tiled, threads)
        self.schedule: CallSchedule = schedule(tiled)
        self.outputs = [vertex.name for vertex in self.schedule.graph.outputs]
        self.space: Peak = peak_of(self.schedule.changes)
        """The most bytes held at once beside the inputs, and the step at which they are."""
        self.wanted = {name: self.program.layouts_of(name) for name in self.program.inputs}
        """The layouts in which inputs are placed."""
        self.lies = {name: _tilings(self.program, name) for name in self.outputs}

    def workers(self, asked: int | None) -> int:
        """How many threads can take part, of those asked for or one for each core."""
        shared = (step for step in self.schedule.steps if step.is_shared(asked))
        return min(asked or cores(), max((len(step.calls) for step in shared), default=1))


_KEPT: dict[tuple[int, int], tuple[ref[Any], ReadyToRun]] = {}


def prepared(plan: Plan, threads: int) -> ReadyToRun:
    """What runs a plan, cached for as long as the plan lives."""
    key = (id(plan), threads)
    known = _KEPT.get(key)
    if known is not None and known[0]() is plan:
        return known[1]
    ready = ReadyToRun(plan, threads)
    _KEPT[key] = (ref(plan, lambda _: _KEPT.pop(key, None)), ready)
    return ready


class ThreadsProgram:
    """A plan made ready to run, and arrays that a run leaves for the next."""

    def __init__(self, plan: Plan, workers: int | None, shortcuts: bool) -> None:
        self._plan, self._asked = plan, workers
        self.ready = prepared(plan, workers or cores() if shortcuts else 0)
        self._workers = self.ready.workers(workers)
        self._spare = Spare()

    def place(self, name: str, given: Any) -> Tensor:
        """Keep an input where it is: threads read the caller's memory."""
        data = SharedArray(given, is_own=False)
        if isinstance(given, Tensor):
            data = given.held()
            data.is_own = False  # two tensors share it now: donating one must not change the other
        return _tensor(name, data, self.ready.program.mesh, self.ready.wanted[name])

    def run(
        self, inputs: ByName, scalars: ByName, donated: Collection[str], on_event: Listener | None
    ) -> Result:
        """Compute the outputs."""
        start = perf_counter()
        arrays, placed = self._arrays(inputs)
        ready, workers = self.ready, self._workers
        stored = {name for name, array in arrays.items() if not is_in_memory(array)}
        if stored:
            ready = prepared(self._plan, 0)  # storage is read in the planned tiles
            workers = ready.workers(self._asked)
        plan = ready.schedule
        # A caller that donates runs repeatedly: what this run drops is kept for the next.
        spare = self._spare if donated else None
        loads = workers * plan.largest_load(stored) if stored else 0
        check_space(plan.graph, ready.space, loads, lambda: 0 if spare is None else spare.nbytes)
        report = None if on_event is None else RunReport(plan, ready.program, on_event)
        held = loads + sum(arrays[name].nbytes for name in arrays if name not in stored)
        memory = Memory(arrays, tuple(scalars.values()), plan.shapes, held, spare)
        if workers > 1:
            HELPERS.rouse()
        # Setting BLAS's threads takes longer than they could disturb so small a program.
        with nullcontext() if plan.seconds < TOGETHER else one_thread_each():
            Walk(plan, memory, self._asked, report).run()
        result = _result(ready, memory, start, workers, placed)
        for name in donated:
            data = inputs[name].held()
            if data.is_own:
                data.is_own = False  # one tensor may be given for several inputs
                self._spare.give(data.array)
        return result

    def _arrays(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """The arrays of all inputs, and the bytes moved to bring tensors into their layouts."""
        arrays, ready = dict(inputs), self.ready
        placed = 0
        for name, given in inputs.items():
            if isinstance(given, Tensor):
                arrays[name] = given.held().array
                # Tensors placed for this plan, such as weights, are in these very layouts.
                if given.tilings is not ready.wanted[name]:
                    placed += placing_bytes(ready.program, name, given)
        return arrays, placed

    def close(self) -> None:
        """Release the arrays kept for the next run."""
        self._spare = Spare()


def _result(ready: ReadyToRun, memory: Memory, start: float, workers: int, placed: int) -> Result:
    mesh = ready.program.mesh
    tensors = {
        name: _tensor(name, SharedArray(array, is_own=True), mesh, ready.lies[name])
        for name, array in memory.outputs(ready.outputs).items()
    }
    seconds = perf_counter() - start
    return Result(tensors, partial(_stats, ready, seconds, memory.peak, workers, placed))


def _tensor(name: str, data: SharedArray, mesh: Mesh, tilings: tuple[Tiling, ...]) -> Tensor:
    shape, dtype = data.array.shape, data.array.dtype
    return Tensor(name, shape, dtype, NAME, mesh, tilings, data, SharedArray.shared)


def _stats(ready: ReadyToRun, seconds: float, peak: int, workers: int, placed: int) -> Stats:
    program, schedule = ready.program, ready.schedule
    moved = program.moved, program.bytes_by_vertex
    return Stats(seconds, schedule.flops, *moved, peak, schedule.tasks, workers, placed)


def _tilings(program: Program, name: str) -> tuple[Tiling, ...]:
    """The layouts of an output; one that is an input is on every device."""
    number = program.outputs.get(name)
    if number is None:
        return (Tiling(uncut(program.graph[name].shape)),)
    return (program.buffers[number].tiling,)


def _workers(given: object) -> int:
    if not is_whole(given) or given < 1:
        raise InputError(f"workers must be 1 or more, not {given!r}")
    return int(given)

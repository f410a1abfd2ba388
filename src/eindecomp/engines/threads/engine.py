"""`ThreadsEngine`: runs plans on the cores of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import ref

from eindecomp.engines.events import (
    BytesMoved,
    Event,
    KernelCompiled,
    RunStarted,
    TaskFinished,
    TensorFreed,
)
from eindecomp.engines.result import Result, Stats
from eindecomp.engines.threads.blas import one_thread_each
from eindecomp.engines.threads.memory import Memory
from eindecomp.engines.threads.pool import WORKERS, Job
from eindecomp.engines.threads.program import Program
from eindecomp.engines.threads.space import check_space
from eindecomp.errors import InputError
from eindecomp.graph.inputs import check_inputs
from eindecomp.kernels.compiling import listeners

if TYPE_CHECKING:
    from eindecomp.engines.threads.program import Call
    from eindecomp.engines.threads.spare import Spare
    from eindecomp.planner.plan import Plan


class ThreadsEngine:
    """Runs plans on threads that share memory; devices are more than threads if need be."""

    def __init__(self, workers: int | None = None, spare: Spare | None = None) -> None:
        if workers is not None and (not isinstance(workers, int) or workers < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"workers must be 1 or more, not {workers!r}")
        self.workers = workers
        self.spare = spare
        """Where arrays are taken from and left, for those who run again and again."""

    def run(
        self,
        plan: Plan,
        inputs: Mapping[str, object],
        *,
        on_event: Callable[[Event], None] | None = None,
    ) -> Result:
        """Compute the outputs of the plan's graph."""
        arrays, scalars = check_inputs(plan.graph, inputs, lazily=True)
        program = prepare(plan)
        check_space(program, 0 if self.spare is None else self.spare.nbytes)
        return self.carry_out(program, arrays, tuple(scalars.values()), on_event)

    def carry_out(
        self,
        program: Program,
        arrays: Mapping[str, Any],
        scalars: tuple[object, ...],
        on_event: Callable[[Event], None] | None = None,
    ) -> Result:
        """Run a program on arrays that fit it."""
        start = perf_counter()
        memory = Memory(
            arrays, scalars, program.shapes, program.reads, _telling_freed(on_event), self.spare
        )
        job = Job(program, memory, None if on_event is None else _telling(on_event))
        if on_event is not None:
            on_event(RunStarted(len(program.calls)))
        workers = min(self.workers or cores(), program.plan.devices)
        with _hearing_compilers(on_event):
            if program.is_small:
                workers = 1
                WORKERS.run(job, workers)
            else:
                with one_thread_each():
                    WORKERS.run(job, workers)
        tasks = program.tasks
        if on_event is not None:
            for step in tasks.steps:
                if step.moved:
                    on_event(BytesMoved(step.vertex, step.kind, step.moved))
        outputs = memory.outputs([vertex.name for vertex in program.graph.outputs])
        stats = Stats(
            perf_counter() - start,
            program.flops,
            tasks.moved,
            tasks.bytes_by_vertex,
            memory.peak,
            len(program.calls),
            workers,
        )
        return Result(outputs, stats)


_PREPARED: dict[int, tuple[ref[Plan], Program]] = {}


def prepare(plan: Plan) -> Program:
    """The program of a plan, made once for as long as the plan lives."""
    known = _PREPARED.get(id(plan))
    if known is not None and known[0]() is plan:
        return known[1]
    program = Program.of(plan)
    forget = partial(_PREPARED.pop, id(plan))
    _PREPARED[id(plan)] = (ref(plan, forget), program)
    return program


@contextmanager
def _hearing_compilers(on_event: Callable[[Event], None] | None) -> Generator[None]:
    """Report kernels that are compiled meanwhile."""
    if on_event is None:
        yield
        return

    def hear(what: str, seconds: float) -> None:
        on_event(KernelCompiled(what, seconds))

    listeners.append(hear)
    try:
        yield
    finally:
        listeners.remove(hear)


def _telling_freed(
    on_event: Callable[[Event], None] | None,
) -> Callable[[str, int], None] | None:
    if on_event is None:
        return None
    return lambda tensor, count: on_event(TensorFreed(tensor, count))


def _telling(on_event: Callable[[Event], None]) -> Callable[[Call, float, float], None]:
    def tell(call: Call, start: float, end: float) -> None:
        on_event(TaskFinished(call.vertex, call.kind, call.device, start, end))

    return tell


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

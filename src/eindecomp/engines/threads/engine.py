"""`ThreadsEngine`: runs plans on the cores of this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import ref

from eindecomp.engines.result import Result, Stats
from eindecomp.engines.threads.job import Job
from eindecomp.engines.threads.memory import Memory
from eindecomp.engines.threads.pool import WORKERS
from eindecomp.engines.threads.program import Program
from eindecomp.engines.threads.report import Report
from eindecomp.engines.threads.space import check_space, largest_load
from eindecomp.errors import EinDecompError, InputError
from eindecomp.graph.checks import whole_number
from eindecomp.graph.inputs import check_inputs
from eindecomp.kernels.cache import limit
from eindecomp.kernels.cores import cores
from eindecomp.kernels.cpu.products.blas_threads import one_thread_each

if TYPE_CHECKING:
    from eindecomp.engines.events import Event
    from eindecomp.engines.threads.spare import Spare
    from eindecomp.planner.plan import Plan


class ThreadsEngine:
    """Runs plans on threads that share memory; devices are more than threads if need be.

    Without `workers` there is a thread for each core, and one alone for what is small.
    """

    def __init__(self, workers: int | None = None, spare: Spare | None = None) -> None:
        self.workers = None if workers is None else _workers(workers)
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
        loads = self._workers(program) * largest_load(program, arrays)
        check_space(program, loads, 0 if self.spare is None else self.spare.nbytes)
        return self.carry_out(program, arrays, tuple(scalars.values()), on_event, loads)

    def _workers(self, program: Program) -> int:
        return min(self.workers or (1 if program.is_small else cores()), program.devices)

    def carry_out(
        self,
        program: Program,
        arrays: Mapping[str, Any],
        scalars: tuple[object, ...],
        on_event: Callable[[Event], None] | None = None,
        loads: int = 0,
    ) -> Result:
        """Run a program on arrays that fit it; `loads` as for `Memory`."""
        start = perf_counter()
        report = None if on_event is None else Report(program, on_event)
        on_free = None if report is None else report.freed
        memory = Memory(arrays, scalars, program.shapes, program.uses, loads, on_free, self.spare)
        workers = self._workers(program)
        # One thread of BLAS's or many: for what is small that makes no difference.
        hold = nullcontext if workers == 1 and program.is_small else one_thread_each
        with hold():
            WORKERS.run(Job(program, memory, report, hold), workers)
        names = [vertex.name for vertex in program.graph.outputs]
        outputs = memory.outputs({name: program.key_of(name) for name in names})
        stats = Stats(
            perf_counter() - start,
            program.flops,
            sum(program.bytes_by_vertex.values()),
            program.bytes_by_vertex,
            memory.peak,
            program.tasks,
            workers,
        )
        return Result(outputs, stats)


def _workers(given: object) -> int:
    try:
        count = whole_number(given, "workers")
    except EinDecompError:
        count = 0
    if count < 1:
        raise InputError(f"workers must be 1 or more, not {given!r}")
    return count


_PREPARED: dict[int, tuple[ref[Plan], Program]] = {}


def prepare(plan: Plan) -> Program:
    """The program of a plan, made once for as long as the plan lives."""
    known = _PREPARED.get(id(plan))
    if known is not None and known[0]() is plan:
        return known[1]
    limit()  # a setting that is wrong is no fault of the vertex whose kernel is compiled first
    program = Program.of(plan)
    forget = partial(_PREPARED.pop, id(plan))
    _PREPARED[id(plan)] = (ref(plan, forget), program)
    return program

"""Programs of one thread that are run again and again: all that changes is where the arrays are.

The first runs find kernels and cut arrays into tiles. Where nothing but machine code of our own was
called for tiles, later runs on arrays of the same layouts write addresses down and call it at once,
without a line of Python in between. What takes more than that, as looking rows up does, is carried
out in its turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.threads.alone import OwnMemory
from eindecomp.engines.threads.bind import bind
from eindecomp.engines.threads.estimate import BRIEF
from eindecomp.engines.threads.forking import GATE
from eindecomp.graph.ops import Fill
from eindecomp.kernels.address import address
from eindecomp.kernels.compilations import record_compilations
from eindecomp.kernels.cpu.einsum import EinSumKernel, typed_scalars
from eindecomp.kernels.cpu.fork_join import HELPERS, RepeatedJob, Repetition, data_word
from eindecomp.kernels.cpu.loops.launch import LoopsCall
from eindecomp.kernels.cpu.products.blas_threads import one_thread_each
from eindecomp.kernels.library import library_of
from eindecomp.lang.scalar import used_scalars

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eindecomp.engines.spare import Spare
    from eindecomp.engines.threads.alone import CallGroup
    from eindecomp.engines.threads.bind import Bound
    from eindecomp.engines.threads.call import KernelCall
    from eindecomp.engines.threads.memory import Key
    from eindecomp.engines.threads.schedule import Schedule
    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]

_LITTLE = 1 << 24
"""Bytes of results that may all be held until the end, and of memory that calls work in."""
_WORTH = 0.5
"""Of all steps, those that must be machine code."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """A run on arrays of certain layouts, to be repeated on others."""

    inputs: tuple[tuple[Key, tuple[int, ...]], ...]
    """The inputs and their strides."""
    constants: Mapping[Key, Array]
    """What is the same in all runs."""
    made: tuple[tuple[Key, tuple[int, ...], DType], ...]
    """The arrays of results."""
    scalars: tuple[tuple[str, DType], ...]
    nbytes: int
    """Bytes of inputs and results."""
    parts: tuple[Repetition | Bound, ...]
    """What is done, one after another."""
    uses_blas: bool

    def run(
        self, given: Mapping[Key, Any], scalars: Sequence[object], spare: Spare | None = None
    ) -> dict[Key, Array] | None:
        """The arrays that are made of arrays in memory, in spare memory if there is some.

        None if inputs lie otherwise, others are at it, or something fails: who carries out one call
        after another can say what.
        """
        for name, strides in self.inputs:
            if given[name].strides != strides:
                return None
        make = np.empty if spare is None else spare.make
        made: dict[Key, Array] = {key: make(shape, of) for key, shape, of in self.made}
        typed = typed_scalars(scalars, self.scalars)
        # In the order in which jobs number them.
        arrays = [*given.values(), *self.constants.values(), *made.values(), *typed]
        if not self.uses_blas:
            return made if self._run(given, made, arrays, scalars) else None
        mark = GATE.join()
        try:
            GATE.enter(mark)
            with one_thread_each():
                return made if self._run(given, made, arrays, scalars) else None
        finally:
            GATE.leave(mark)

    def _run(
        self,
        given: Mapping[Key, Any],
        made: Mapping[Key, Array],
        arrays: Sequence[Array],
        scalars: Sequence[object],
    ) -> bool:
        memory: OwnMemory | None = None
        for part in self.parts:
            if isinstance(part, Repetition):
                if not HELPERS.repeat(part, arrays):
                    return False
                continue
            memory = memory or OwnMemory({**given, **self.constants, **made}, scalars, {})
            try:
                with np.errstate(all="ignore"), record_compilations():
                    part(memory)
            except Exception:
                return False
        return True


def repeated(
    schedule: Schedule,
    steps: Sequence[CallGroup],
    outputs: Iterable[Key],
    given: Mapping[Key, Any],
) -> Repeated | None:
    """How to repeat a run on arrays like these; None if it takes more than code of our own."""
    shapes, results = schedule.shapes, {*outputs}
    space = sum(prod(shape) * of.itemsize for shape, of in shapes.values())
    if data_word() < 0 or space > _LITTLE:
        return None
    if not shapes.keys() >= results:
        return None  # an input that is an output is copied
    types = tuple(schedule.graph.scalars.items())
    memory = OwnMemory({**given}, [0] * len(types), shapes)
    constants = _constants(schedule, steps, results, memory)
    for key, (shape, of) in shapes.items():
        if key not in constants:
            memory.arrays[key] = np.empty(shape, of)
    made = tuple((key, *each) for key, each in shapes.items() if key not in constants)
    order = [*given, *constants, *(key for key, _, _ in made)]
    finder = _Finder(schedule, memory, {key: k for k, key in enumerate(order)}, len(types))
    changing = [step for step in steps if not _writes(step) <= constants.keys()]
    parts, coded = _parts(schedule, changing, finder, len(order) + len(types))
    if coded < _WORTH * len(steps) or finder.scratch > _LITTLE:
        return None  # each keeps memory to work in for as long as the plan lives
    inputs = tuple((name, array.strides) for name, array in given.items())
    held = space + sum(array.nbytes for array in given.values())
    return Repeated(inputs, constants, made, types, held, parts, finder.uses_blas)


def _parts(
    schedule: Schedule, steps: Sequence[CallGroup], finder: _Finder, arrays: int
) -> tuple[tuple[Repetition | Bound, ...], int]:
    """Machine code as far as it goes, and other steps between; how many steps are such code."""
    found: list[Repetition | Bound] = []
    groups: list[list[RepeatedJob]] = []
    coded, spent = 0, 0.0
    for step in steps:
        jobs = finder.jobs(step)
        seconds = schedule.seconds_by_vertex[step.calls[0].vertex]
        if groups and (jobs is None or spent + seconds > BRIEF):
            # The thread hears of nothing else while it is in machine code.
            found.append(Repetition(groups, arrays))
            groups, spent = [], 0.0
        if jobs is None:
            found.append(step.run)
        else:
            groups.append(jobs)
            coded, spent = coded + 1, spent + seconds
    if groups:
        found.append(Repetition(groups, arrays))
    return tuple(found), coded


def _writes(step: CallGroup) -> set[Key]:
    return {key for call in step.calls for key, _ in call.writes}


def _constants(
    schedule: Schedule, steps: Sequence[CallGroup], outputs: set[Key], memory: OwnMemory
) -> dict[Key, Array]:
    """What is filled without a scalar of the run, and is changed by nobody.

    Whoever has an output may change it, and a product may be added to what is there.
    """
    found: dict[Key, Array] = {}
    changed = set(outputs)
    for step in steps:
        vertex = schedule.graph[step.calls[0].vertex]
        if not isinstance(vertex.op, Fill) or used_scalars(vertex.op.value):
            changed |= _writes(step)
    for call in chain.from_iterable(step.calls for step in steps):
        key, _ = call.writes[0]
        if key not in changed:
            bind(schedule.graph, call)(memory)
            found[key] = memory.arrays[key]
    return found


class _Finder:
    """Finds the machine code of calls, and where in its argument the addresses of arrays belong."""

    def __init__(
        self,
        schedule: Schedule,
        memory: OwnMemory,
        numbers: Mapping[Key, int],
        scalars: int,
    ) -> None:
        self._schedule, self._memory, self._numbers = schedule, memory, numbers
        self._scalars = [len(numbers) + k for k in range(scalars)]
        self.uses_blas = False
        self.scratch = 0

    def jobs(self, step: CallGroup) -> list[RepeatedJob] | None:
        """The jobs of a step; None if it takes more than machine code."""
        launches = [self._launch(call) for call in step.calls]
        if any(launch is None for launch in launches):
            # It may be BLAS that is called from Python, in its turn.
            self.uses_blas |= self._is_product(step.calls[0].vertex)
            return None
        found: list[RepeatedJob] = []
        for call, launch in zip(step.calls, launches, strict=True):
            if launch is not None:
                self.uses_blas |= launch.uses_blas
                self.scratch += launch.scratch
                found.append(self._job(launch, call))
        return found

    def _is_product(self, name: str) -> bool:
        graph = self._schedule.graph
        vertex = graph[name]
        if isinstance(vertex.op, Fill):
            return False
        return library_of(np.ndarray).kernel(graph, vertex).is_product

    def _launch(self, call: KernelCall) -> LoopsCall | None:
        graph = self._schedule.graph
        if call.kind != "compute" or call.is_partial:
            return None
        kernel = library_of(np.ndarray).kernel(graph, graph[call.vertex])
        if not isinstance(kernel, EinSumKernel):
            return None
        operands = [None if block is None else self._memory.read(*block) for block in call.reads]
        launch = kernel.launch_of(operands, self._memory.write(*call.writes[0]), add=call.adds)
        if not isinstance(launch, LoopsCall) or launch.packs:
            return None
        return launch if getattr(launch.function, "address", 0) else None

    def _job(self, launch: LoopsCall, call: KernelCall) -> RepeatedJob:
        """Places of inputs that are read, of scalars, of the result, then of scratch memory."""
        *places, scratch = launch.addresses
        inputs = [block for block in call.reads if block is not None]
        read = len(places) - launch.scalars - 1
        named: list[tuple[int, int]] = []
        for key, where in (*inputs[:read], call.writes[0]):
            start = address(self._memory.arrays[key])
            named.append((self._numbers[key], address(self._memory.read(key, where)) - start))
        named[-1:-1] = [(number, 0) for number in self._scalars[: launch.scalars]]
        at = [(place, *each) for place, each in zip(places, named, strict=True)]
        code: int = getattr(launch.function, "address", 0)
        return RepeatedJob(code, launch.integers, at, launch.scratch, scratch, launch)

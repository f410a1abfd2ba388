"""Brief programs that are run again and again: all that changes is where the arrays are.

The first runs find kernels and cut arrays into tiles. If nothing but machine code of our own was
called for tiles, later runs on arrays of the same layouts write addresses down and call it at once,
without a line of Python in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.threads.alone import OwnMemory
from eindecomp.engines.threads.forking import GATE
from eindecomp.engines.threads.memory import is_in_memory
from eindecomp.kernels.cpu.einsum import EinSumKernel
from eindecomp.kernels.cpu.fork_join import HELPERS, RepeatedJob, Repetition, data_word
from eindecomp.kernels.cpu.loops.launch import LoopsCall
from eindecomp.kernels.cpu.products.blas_threads import one_thread_each
from eindecomp.kernels.library import library_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.engines.threads.alone import CallGroup
    from eindecomp.engines.threads.call import KernelCall
    from eindecomp.engines.threads.memory import Key
    from eindecomp.engines.threads.schedule import Schedule
    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]

_LITTLE = 1 << 24
"""Bytes of results that may all be held until the end, and of memory that calls work in."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """A run on arrays of certain layouts, to be repeated on others."""

    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    """The inputs and their strides."""
    made: tuple[tuple[Key, tuple[int, ...], DType], ...]
    """The arrays of results."""
    nbytes: int
    """Bytes of inputs and results."""
    repetition: Repetition
    uses_blas: bool

    def run(self, given: Mapping[str, Any]) -> dict[Key, Array] | None:
        """The arrays that are made; None if inputs lie otherwise, or others are at it."""
        arrays: list[Array] = []
        for name, strides in self.inputs:
            array = given[name]
            if type(array) is not np.ndarray or array.strides != strides:
                return None
            if array.base is not None and not is_in_memory(array):
                return None
            arrays.append(array)
        made: dict[Key, Array] = {key: np.empty(shape, of) for key, shape, of in self.made}
        arrays += made.values()
        if not self.uses_blas:
            return made if HELPERS.repeat(self.repetition, arrays) else None
        mark = GATE.join()
        try:
            GATE.enter(mark)
            with one_thread_each():
                return made if HELPERS.repeat(self.repetition, arrays) else None
        finally:
            GATE.leave(mark)


def repeated(
    schedule: Schedule,
    steps: Sequence[CallGroup],
    outputs: Mapping[str, Key],
    given: Mapping[str, Any],
) -> Repeated | None:
    """How to repeat a run on arrays like these; None if it takes more than code of our own."""
    graph, shapes = schedule.graph, schedule.shapes
    space = sum(prod(shape) * of.itemsize for shape, of in shapes.values())
    if data_word() < 0 or graph.scalars or space > _LITTLE:
        return None
    if not shapes.keys() >= {*outputs.values()}:
        return None  # an input that is an output is copied
    if not all(type(array) is np.ndarray and is_in_memory(array) for array in given.values()):
        return None
    arrays: dict[Key, Any] = {**given}
    memory = OwnMemory(arrays, (), shapes)
    for key, (shape, of) in shapes.items():
        memory.arrays[key] = np.empty(shape, of)
    starts = {key: (n, address(array)) for n, (key, array) in enumerate(memory.arrays.items())}
    groups: list[list[RepeatedJob]] = []
    uses_blas = False
    for step in steps:
        jobs: list[RepeatedJob] = []
        for call in step.calls:
            launch = _launch_of(schedule, call, memory)
            if launch is None:
                return None
            uses_blas |= launch.uses_blas
            jobs.append(_job(launch, call, memory, starts))
        groups.append(jobs)
    if sum(job.scratch for jobs in groups for job in jobs) > _LITTLE:
        return None  # each keeps its own for as long as the plan lives
    inputs = tuple((name, array.strides) for name, array in given.items())
    made = tuple((key, shape, of) for key, (shape, of) in shapes.items())
    held = space + sum(array.nbytes for array in given.values())
    return Repeated(inputs, made, held, Repetition(groups, len(starts)), uses_blas)


def _launch_of(schedule: Schedule, call: KernelCall, memory: OwnMemory) -> LoopsCall | None:
    """The machine code of a call, if that is all there is to it."""
    kernel = library_of(np.ndarray).kernel(schedule.graph, schedule.graph[call.vertex])
    if not isinstance(kernel, EinSumKernel) or call.is_partial or call.adds:
        return None
    if call.kind != "compute":
        return None
    operands = [None if block is None else memory.read(*block) for block in call.reads]
    launch = kernel.launch_of(operands, memory.write(*call.writes[0]))
    if not isinstance(launch, LoopsCall) or launch.packs or launch.scalars:
        return None
    return launch if getattr(launch.function, "address", 0) else None


def _job(
    launch: LoopsCall,
    call: KernelCall,
    memory: OwnMemory,
    starts: Mapping[Key, tuple[int, int]],
) -> RepeatedJob:
    """Machine code with the places of addresses: those of inputs that are read, then the result."""
    *reads, scratch = launch.addresses
    inputs = [block for block in call.reads if block is not None]
    places: list[tuple[int, int, int]] = []
    for at, (key, where) in zip(reads, (*inputs[: len(reads) - 1], call.writes[0]), strict=True):
        number, start = starts[key]
        places.append((at, number, address(memory.read(key, where)) - start))
    code: int = getattr(launch.function, "address", 0)
    return RepeatedJob(code, launch.integers, places, launch.scratch, scratch)


def address(array: Array) -> int:
    """Where an array's first element is."""
    return array.__array_interface__["data"][0]

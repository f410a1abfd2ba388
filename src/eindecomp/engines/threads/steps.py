"""The calls of a schedule, which are data, as functions of a run's memory: step by step.

A step is the calls of one vertex, which need nothing of each other. The kernels are found once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.threads.brief import APART, TOGETHER
from eindecomp.graph.ops import Fill, Gather
from eindecomp.kernels.library import library_of
from eindecomp.tra.program.memory import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eindecomp.engines.threads.memory import Key, Memory
    from eindecomp.engines.threads.schedule import Block, KernelCall, Schedule
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex

    Array = np.ndarray[Any, Any]
    Bound = Callable[[Memory], None]


@dataclass(frozen=True, slots=True)
class Step:
    """Calls that are carried out at once, or one after another; often only one."""

    first: int
    """The number of the first call in the schedule."""
    calls: tuple[KernelCall, ...]
    run: tuple[Bound, ...]
    """What carries out each of them."""
    together: Bound | None
    """What carries all of them out at once, in compiled code as far as there is some."""
    makes: tuple[Key, ...]
    """The arrays that are written first by these calls."""
    drops: tuple[Key, ...]
    """The arrays that nobody uses afterwards."""
    seconds: float
    """About how long one core would take for the vertex."""
    is_worth_sharing: bool

    def is_shared(self, workers: int | None) -> bool:
        """Whether other threads take part: if so many were asked for, or if it is worth it."""
        if len(self.calls) < 2 or workers == 1:
            return False
        return workers is not None or self.is_worth_sharing


def steps_of(schedule: Schedule) -> tuple[Step, ...]:
    """The steps of a schedule, in order."""
    graph, kept = schedule.graph, {schedule.key_of(each.name) for each in schedule.graph.outputs}
    last = {key: number for number, call in enumerate(schedule.calls) for key in call.uses}
    made: set[Key] = set()
    steps: list[Step] = []
    numbered = enumerate(schedule.calls)
    for (name, _), group in groupby(numbered, key=lambda each: (each[1].vertex, each[1].kind)):
        numbers, calls = zip(*group, strict=True)
        written = dict.fromkeys(key for call in calls for key, _ in call.writes)
        makes = tuple(key for key in written if key not in made)
        made.update(makes)
        uses = dict.fromkeys(key for call in calls for key in call.uses)
        drops = tuple(key for key in uses if key not in kept and last[key] <= numbers[-1])
        run = tuple(bind(graph, call) for call in calls)
        is_whole = all(call.kind == "compute" and not call.is_partial for call in calls)
        together = _bind_together(graph, calls) if is_whole and len(calls) > 1 else None
        seconds = schedule.seconds_by_vertex[name]
        worth = seconds >= APART and schedule.seconds >= TOGETHER
        steps.append(Step(numbers[0], calls, run, together, makes, drops, seconds, worth))
    return tuple(steps)


def changes(schedule: Schedule, steps: Sequence[Step]) -> Iterator[Change]:
    """What each step adds to the bytes that are held, and what may be dropped after it."""
    sizes = {
        key: int(np.prod(shape, dtype=object)) * dtype.itemsize
        for key, (shape, dtype) in schedule.shapes.items()
    }
    for step in steps:
        fresh = sum(sizes[key] for key in step.makes)
        dropped = sum(sizes.get(key, 0) for key in step.drops)
        yield Change(step.calls[0].vertex, fresh, 0, dropped)


def bind(graph: Graph, call: KernelCall) -> Bound:
    """What carries a call out."""
    vertex = graph[call.vertex]
    if isinstance(vertex.op, Fill):
        return _fill(graph, vertex.op, call)
    if call.kind == "reduce-scatter":
        return _reduce(graph, vertex, call)
    return _compute(graph, vertex, call)


def _compute(graph: Graph, vertex: Vertex, call: KernelCall) -> Bound:
    kernel = library_of(np.ndarray).kernel(graph, vertex)
    read = _reader(vertex, call.reads)
    key, where = call.writes[0]
    if call.adds:

        def run(memory: Memory) -> None:
            kernel.add(read(memory), memory.write(key, where))

    elif not call.is_partial:

        def run(memory: Memory) -> None:
            kernel.whole(read(memory), memory.write(key, where), memory.scalars)

    else:

        def run(memory: Memory) -> None:
            operands = read(memory)
            state = [memory.write(*block) for block in call.writes]
            kernel.partial(operands, state, memory.scalars)

    return run


def _bind_together(graph: Graph, calls: Sequence[KernelCall]) -> Bound:
    """What carries out calls for whole tiles of one vertex, at once."""
    vertex = graph[calls[0].vertex]
    kernel = library_of(np.ndarray).kernel(graph, vertex)
    tiles = [(_reader(vertex, call.reads), *call.writes[0]) for call in calls]
    adds = calls[0].adds

    def run(memory: Memory) -> None:
        given = [(read(memory), memory.write(key, where)) for read, key, where in tiles]
        kernel.wholes(given, memory.scalars, add=adds)

    return run


def _reader(
    vertex: Vertex, reads: tuple[Block | None, ...]
) -> Callable[[Memory], list[Array | None]]:
    """What gives a kernel its operands."""
    blocks = [block for block in reads if block is not None]
    if isinstance(vertex.op, Gather):
        axis, (table, index) = vertex.op.axis, blocks
        return lambda memory: [*memory.read_rows(*table, axis, memory.read(*index))]
    if len(blocks) == len(reads):
        return lambda memory: [memory.read(key, where) for key, where in blocks]
    return lambda memory: [None if block is None else memory.read(*block) for block in reads]


def _reduce(graph: Graph, vertex: Vertex, call: KernelCall) -> Bound:
    kernel = library_of(np.ndarray).kernel(graph, vertex)
    width = len(kernel.state)
    states = [call.reads[k : k + width] for k in range(0, len(call.reads), width)]
    key, where = call.writes[0]

    def run(memory: Memory) -> None:
        result = memory.write(key, where)
        # No other reduction reads this block, so that the first part may take up the sum.
        parts = [[memory.read(*block) for block in state if block is not None] for state in states]
        into = parts.pop(0) if call.is_partial else [result]
        for other in parts:
            kernel.combine(into, other)
        if call.is_partial:
            kernel.finish(into, result)

    return run


def _fill(graph: Graph, op: Fill, call: KernelCall) -> Bound:
    library, types = library_of(np.ndarray), dict(graph.scalars)
    key, where = call.writes[0]

    def run(memory: Memory) -> None:
        scalars = dict(zip(types, memory.scalars, strict=True))
        library.fill(op, memory.write(key, where), call.box, scalars, types)

    return run

"""A plan made ready to run: one closure for each kernel call and reduction, and who waits for whom.

Devices that would compute the same tile (it is replicated) share memory here, so that one of them
does. Moves cost nothing but are counted: they are what the plan says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.threads.memory import Key, Memory, Where
from eindecomp.engines.threads.space import needed_space
from eindecomp.graph.ops import Fill, Input
from eindecomp.kernels.fills import fill
from eindecomp.kernels.kernel import Kernel, einsum_kernel, flops
from eindecomp.kernels.moves import MoveKernel
from eindecomp.lang.einsum import EinSum
from eindecomp.tra.boxes import Box, meet, volume
from eindecomp.tra.lower import lower
from eindecomp.tra.tasks import Compute, Layout, Reduce, Step, Store, TaskGraph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.dtypes import DType
    from eindecomp.planner.plan import Plan

    Array = np.ndarray[Any, Any]


_SMALL = 200_000  # operations that take one thread about as long as waking another
_TINY = 5_000  # operations of a call below which threads wait for the interpreter more than work
_TRIFLE = 50_000  # operations of a vertex that one thread is done with before another has woken up
_SHARE = 1_000  # and that are to the whole program as one to this


@dataclass(frozen=True, slots=True)
class Call:
    """One piece of work: what to run, what must have run before, and what it reads for good."""

    run: Callable[[Memory], None]
    after: tuple[int, ...]
    reads: tuple[Key, ...]
    vertex: str
    kind: str
    device: int
    box: Box


@dataclass
class Program:
    """The calls of a plan in an order that works, and the arrays that they need."""

    plan: Plan
    tasks: TaskGraph
    calls: list[Call] = field(default_factory=list[Call])
    shapes: dict[Key, tuple[tuple[int, ...], DType]] = field(default_factory=dict[Key, Any])
    flops: int = 0
    writers: dict[str, tuple[tuple[int, ...], tuple[Box, ...]]] = field(
        default_factory=dict[str, Any]
    )
    """For each tensor the calls that write it, and what each of them writes."""
    parts: dict[str, dict[int, int]] = field(default_factory=dict[str, Any])
    """For a vertex that is reduced, the call in which each device takes part."""
    trifles: set[str] = field(default_factory=set[str])
    """Vertices that are computed by one call, however they are cut: memory is shared."""

    @staticmethod
    def of(plan: Plan) -> Program:
        """Lower a plan and find its kernels."""
        program = Program(plan, lower(plan))
        program.trifles = _trifles(plan.graph)
        for step in program.tasks.steps:
            if step.kind == "compute":
                program._compute(step)
            elif step.kind == "reduce":
                program._reduce(step)
        for vertex in plan.graph.outputs:
            program._fill(vertex.name)
        return program

    @property
    def graph(self) -> Graph:
        """What is computed."""
        return self.plan.graph

    @cached_property
    def space(self) -> tuple[int, str]:
        """The most bytes that are held at once beside the inputs, and where."""
        return needed_space(self)

    @cached_property
    def is_small(self) -> bool:
        """Whether handing calls to other threads would take longer than the calls."""
        work = max(self.flops, sum(volume(call.box) for call in self.calls))
        return work < max(_SMALL, _TINY * len(self.calls))

    @cached_property
    def reads(self) -> dict[Key, int]:
        """How often each array that is dropped in the end is read."""
        kept = {vertex.name for vertex in self.graph.outputs}
        counts = Counter(key for call in self.calls for key in call.reads)
        return {key: n for key, n in counts.items() if key not in kept}

    def _compute(self, step: Step) -> None:
        vertex = self.graph[step.vertex]
        kernel = _kernel(self.graph, vertex)
        for name in vertex.inputs:
            self._fill(name)
        tasks = _distinct([task for task in step.tasks if isinstance(task, Compute)])
        if vertex.name in self.trifles:
            tasks = [_undivided(self.graph, vertex, tasks[0])]
        waits = [self._waits(vertex, k, [t.reads[k] for t in tasks]) for k in _read(tasks)]
        numbers: list[int] = []
        seen: set[Box] = set()
        for i, task in enumerate(tasks):
            after = tuple(sorted({number for wait in waits for number in wait[i]}))
            numbers.append(len(self.calls))
            first = task.box not in seen
            seen.add(task.box)
            self.calls.append(self._kernel_call(vertex, kernel, task, after, first))
        self.shapes[vertex.name] = (vertex.shape, vertex.dtype)
        if isinstance(vertex.op, EinSum):
            self.flops += flops(vertex.op, _sizes(self.graph, vertex, vertex.op))
        if tasks[0].into.layout is Layout.HOME:
            self.writers[vertex.name] = (tuple(numbers), tuple(task.box for task in tasks))
        else:
            call_of = {(t.box, t.reads): n for t, n in zip(tasks, numbers, strict=True)}
            every = (task for task in step.tasks if isinstance(task, Compute))
            self.parts[vertex.name] = {t.device: call_of[t.box, t.reads] for t in every}

    def _kernel_call(
        self,
        vertex: Vertex,
        kernel: Kernel | MoveKernel,
        task: Compute,
        after: tuple[int, ...],
        first: bool,
    ) -> Call:
        shapes = [self.graph[name].shape for name in vertex.inputs]
        operands = [
            (name, _where(box, shape))
            for name, box, shape in zip(vertex.inputs, task.reads, shapes, strict=True)
            if box is not None
        ]
        lent = self._lent(vertex, task)
        out = _where(task.box, vertex.shape)
        name = vertex.name
        if task.into.layout is Layout.HOME:

            def run(memory: Memory) -> None:
                tiles = [memory.read(*operand) for operand in operands]
                kernel.whole(tiles + lent, memory.write(name, out), memory.scalars)

        else:
            places = self._partial(vertex, kernel, task, first)

            def run(memory: Memory) -> None:
                tiles = [memory.read(*operand) for operand in operands]
                state = [memory.write(*place) for place in places]
                kernel.partial(tiles + lent, state, memory.scalars)

        reads = tuple(source for source, _ in operands)
        return Call(run, after, reads, name, "compute", task.device, task.box)

    def _lent(self, vertex: Vertex, task: Compute) -> list[Array]:
        """Stand-ins, of no extent in memory, for inputs that only lend their labels.

        They come after those that are read. A label that is not cut elsewhere is whole.
        """
        op = vertex.op
        if not isinstance(op, EinSum):
            return []
        boxes = [(op.output, task.box), *zip(op.inputs, task.reads, strict=True)]
        sizes = _sizes(self.graph, vertex, op)
        for labels, box in boxes:
            if box is not None:
                sizes |= {t: high - low for t, (low, high) in zip(labels, box, strict=True)}
        return [
            np.broadcast_to(np.zeros((), self.graph[name].dtype), [sizes[t] for t in labels])
            for name, labels, box in zip(vertex.inputs, op.inputs, task.reads, strict=True)
            if box is None
        ]

    def _partial(
        self, vertex: Vertex, kernel: Kernel | MoveKernel, task: Compute, first: bool
    ) -> list[tuple[Key, Where]]:
        """Where a kernel call leaves its part of a sum: the first may do so in the result."""
        if first and _in_place(vertex, kernel):
            return [(vertex.name, _where(task.box, vertex.shape))]
        shape = tuple(high - low for low, high in task.box)
        keys: list[Key] = [(vertex.name, len(self.calls), k) for k in range(len(kernel.state))]
        for key, dtype in zip(keys, kernel.state, strict=True):
            self.shapes[key] = (shape, dtype)
        return [(key, None) for key in keys]

    def _reduce(self, step: Step) -> None:
        vertex = self.graph[step.vertex]
        if vertex.name in self.trifles:
            return
        kernel = _kernel(self.graph, vertex)
        call_of = self.parts[vertex.name]
        numbers: list[int] = []
        boxes: list[Box] = []
        for task in step.tasks:
            if not isinstance(task, Reduce) or not volume(task.box) or task.box in boxes:
                continue
            members = [call_of[device] for device in task.members]
            numbers.append(len(self.calls))
            boxes.append(task.box)
            self.calls.append(self._reduce_call(vertex, kernel, task, members))
        self.writers[vertex.name] = (tuple(numbers), tuple(boxes))

    def _reduce_call(
        self, vertex: Vertex, kernel: Kernel | MoveKernel, task: Reduce, members: Sequence[int]
    ) -> Call:
        name, width = vertex.name, len(kernel.state)
        out = _where(task.box, vertex.shape)
        corner = [low for low, _ in self.calls[members[0]].box]
        inside: Where = tuple(
            slice(low - start, high - start)
            for (low, high), start in zip(task.box, corner, strict=True)
        )
        inside = inside or None  # an index of no dimensions would take the number, not the array
        in_place = (name, members[0], 0) not in self.shapes
        keys: list[list[Key]] = [[(name, m, k) for k in range(width)] for m in members]
        rest = keys[1:]

        def run(memory: Memory) -> None:
            result = memory.write(name, out)
            into = [result] if in_place else [memory.read(k, inside).copy() for k in keys[0]]
            for other in rest:
                kernel.combine(into, [memory.read(key, inside) for key in other])
            if not in_place:
                kernel.finish(into, result)

        reads = tuple(key for state in (rest if in_place else keys) for key in state)
        return Call(run, tuple(sorted(set(members))), reads, name, "reduce", task.device, task.box)

    def _fill(self, name: str) -> None:
        """Make a tensor of its indices before it is first read."""
        vertex = self.graph[name]
        if not isinstance(vertex.op, Fill) or name in self.writers:
            return
        op, types = vertex.op, dict(self.graph.scalars)

        def run(memory: Memory) -> None:
            fill(op, memory.write(name, None), dict(zip(types, memory.scalars, strict=True)), types)

        box = tuple((0, size) for size in vertex.shape)
        self.writers[name] = ((len(self.calls),), (box,))
        self.shapes[name] = (vertex.shape, vertex.dtype)
        self.calls.append(Call(run, (), (), name, "fill", 0, box))

    def _waits(self, vertex: Vertex, k: int, boxes: list[Box | None]) -> list[tuple[int, ...]]:
        """For each block of an input that is read, the calls that write to it."""
        source = vertex.inputs[k]
        if isinstance(self.graph[source].op, Input):
            return [()] * len(boxes)
        numbers, written = self.writers[source]
        needed = tuple(box for box in boxes if box is not None)
        return [tuple(numbers[w] for w in row) for row in _overlapping(needed, written)]


@lru_cache(maxsize=1 << 12)
def _overlapping(needed: tuple[Box, ...], written: tuple[Box, ...]) -> tuple[tuple[int, ...], ...]:
    """For each box the numbers of those that share elements with it."""
    return tuple(
        tuple(w for w, other in enumerate(written) if meet(box, other) is not None)
        for box in needed
    )


def _read(tasks: Sequence[Compute]) -> list[int]:
    return [k for k, box in enumerate(tasks[0].reads) if box is not None]


def _distinct(tasks: Sequence[Compute]) -> list[Compute]:
    """One of all those that would compute the same."""
    return list({(task.box, task.reads): task for task in reversed(tasks)}.values())[::-1]


def _undivided(graph: Graph, vertex: Vertex, task: Compute) -> Compute:
    """The whole of a vertex as one task."""
    reads = tuple(
        None if box is None else _all_of(graph[name].shape)
        for name, box in zip(vertex.inputs, task.reads, strict=True)
    )
    home = Store(vertex.name, Layout.HOME)
    return Compute(task.device, vertex.name, reads, _all_of(vertex.shape), home)


def _all_of(shape: Sequence[int]) -> Box:
    return tuple((0, size) for size in shape)


def _trifles(graph: Graph) -> set[str]:
    """The EinSums that are next to nothing, both beside the others and by themselves."""
    work = {
        vertex.name: max(flops(vertex.op, _sizes(graph, vertex, vertex.op)), vertex.elements)
        for vertex in graph.vertices.values()
        if isinstance(vertex.op, EinSum)
    }
    least = min(_TRIFLE, sum(work.values()) // _SHARE)
    return {name for name, operations in work.items() if operations < least}


def _kernel(graph: Graph, vertex: Vertex) -> Kernel | MoveKernel:
    if not isinstance(vertex.op, EinSum):
        return MoveKernel(vertex.op, vertex.dtype)
    types = tuple(graph[name].dtype for name in vertex.inputs)
    return einsum_kernel(vertex.op, types, vertex.dtype, tuple(graph.scalars.items()))


def _in_place(vertex: Vertex, kernel: Kernel | MoveKernel) -> bool:
    """Whether partial results are held as the result is."""
    agg = getattr(vertex.op, "agg", None)
    return kernel.state == (vertex.dtype,) and (agg is None or agg.finish is None)


def _sizes(graph: Graph, vertex: Vertex, op: EinSum) -> dict[str, int]:
    found = vertex.sizes
    for name, labels in zip(vertex.inputs, op.inputs, strict=True):
        found |= graph[name].sizes_by(labels)
    return found


def _where(box: Box, shape: Sequence[int]) -> Where:
    """The tile's slices, None if it is the whole array."""
    if all((low, high) == (0, size) for (low, high), size in zip(box, shape, strict=True)):
        return None
    return tuple(slice(low, high) for low, high in box)

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

from eindecomp.engines.threads.call import Call
from eindecomp.engines.threads.folds import Fold, find_folds
from eindecomp.engines.threads.memory import Key, Memory, Where
from eindecomp.engines.threads.merge import Tile, merge
from eindecomp.engines.threads.space import loads_of, needed_space
from eindecomp.engines.threads.trifles import find_trifles, undivided
from eindecomp.graph.ops import Fill, Gather, Input
from eindecomp.graph.work import operations
from eindecomp.kernels.cores import cores
from eindecomp.kernels.library import library_of
from eindecomp.lang.einsum import EinSum
from eindecomp.tra.boxes import Box, meet, volume
from eindecomp.tra.lower import lower
from eindecomp.tra.tasks import Compute, Layout, Reduce, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.kernels.library import TileKernel
    from eindecomp.lang.dtypes import DType
    from eindecomp.planner.plan import Plan

    Array = np.ndarray[Any, Any]


_LIBRARY = library_of(np.ndarray)
_SMALL = 200_000  # operations that take one thread about as long as waking another
_LONG = 0.25  # seconds after which a person could want to interrupt a run
_PRODUCTS, _LOOPS = 5e10, 2e9  # operations a second of any core, about
_TINY = 5_000  # operations of a call below which threads wait for the interpreter more than work


@dataclass
class Program:
    """The calls of a plan in an order that works, and the arrays that they need.

    It does not hold the plan, so that it can be kept for as long as the plan lives.
    """

    graph: Graph
    devices: int
    moves: tuple[tuple[str, str, int], ...]
    """The steps that move bytes: vertex, kind, how many."""
    bytes_by_vertex: Mapping[str, int]
    calls: list[Call] = field(default_factory=list[Call])
    shapes: dict[Key, tuple[tuple[int, ...], DType]] = field(default_factory=dict[Key, Any])
    flops: int = 0
    seconds: float = 0.0
    """About how long one core would take."""
    writers: dict[str, tuple[tuple[int, ...], tuple[Box, ...]]] = field(
        default_factory=dict[str, Any]
    )
    """For each tensor the calls that write it, and what each of them writes."""
    parts: dict[str, dict[int, int]] = field(default_factory=dict[str, Any])
    """For a vertex that is reduced, the call in which each device takes part."""
    lies_in: dict[str, str] = field(default_factory=dict[str, str])
    """For a sum that a product was added to, the tensor whose array it is in."""
    folds: dict[str, Fold] = field(default_factory=dict[str, Fold])
    trifles: set[str] = field(default_factory=set[str])
    """Vertices that are computed by one call, however they are cut: memory is shared."""

    @staticmethod
    def of(plan: Plan) -> Program:
        """Lower a plan and find its kernels."""
        tasks = lower(plan)
        moves = tuple((step.vertex, step.kind, step.moved) for step in tasks.steps if step.moved)
        program = Program(plan.graph, plan.devices, moves, tasks.bytes_by_vertex)
        reduced = {step.vertex for step in tasks.steps if step.kind == "reduce"}
        program.folds = find_folds(plan.graph, reduced)
        program.trifles = find_trifles(plan.graph)
        for step in tasks.steps:
            if step.kind == "compute" and step.vertex not in program.lies_in:
                program._compute(step)
            elif step.kind == "reduce":
                program._reduce(step)
        for vertex in plan.graph.outputs:
            program._fill(vertex.name)
        return program

    @cached_property
    def space(self) -> tuple[int, str]:
        """The most bytes that are held at once beside the inputs, and where."""
        return needed_space(self)

    @cached_property
    def tasks(self) -> int:
        """How many tiles devices compute and reduce, those that are computed as one each."""
        return sum(len(call.devices) for call in self.calls)

    @cached_property
    def is_small(self) -> bool:
        """Whether handing calls to other threads would take longer than the calls."""
        return self.work < max(_SMALL, _TINY * len(self.calls))

    @cached_property
    def is_long(self) -> bool:
        """Whether a person could want to interrupt it.

        Others then carry it out, and two threads that wake up at once may share a core for a while.
        """
        return self.seconds >= _LONG

    @cached_property
    def work(self) -> int:
        """About how many operations it takes."""
        return max(self.flops, sum(volume(call.box) for call in self.calls))

    @cached_property
    def uses(self) -> dict[Key, int]:
        """How often each array that is dropped in the end is used."""
        kept = {self.key_of(vertex.name) for vertex in self.graph.outputs}
        counts = Counter(key for call in self.calls for key in call.uses)
        return {key: n for key, n in counts.items() if key not in kept}

    def key_of(self, name: str) -> str:
        """The tensor whose array a tensor is in: itself, but for sums made in place."""
        return self.lies_in.get(name, name)

    @cached_property
    def moves_by_call(self) -> dict[int, list[tuple[str, str, int]]]:
        """What moves when a call starts: the first that needs it, or the last that made it."""
        first: dict[tuple[str, str], int] = {}
        last: dict[str, int] = {}
        for number, call in enumerate(self.calls):
            first.setdefault((call.vertex, call.kind), number)
            last[call.vertex] = number
        computed_with = {fold.total: product for product, fold in self.folds.items()}
        found: dict[int, list[tuple[str, str, int]]] = {}
        for move in self.moves:
            vertex, kind = computed_with.get(move[0], move[0]), move[1]
            made = kind in ("keep", "replicate")
            by = "reduce" if kind == "reduce" else "compute"
            number = last[vertex] if made else first.get((vertex, by), last[vertex])
            found.setdefault(number, []).append(move)
        return found

    def _compute(self, step: Step) -> None:
        vertex = self.graph[step.vertex]
        kernel = _LIBRARY.kernel(self.graph, vertex)
        tasks = _distinct([task for task in step.tasks if isinstance(task, Compute)])
        for k in _read(tasks):
            self._fill(vertex.inputs[k])
        tiles = [Tile(task, (task.device,)) for task in tasks]
        if vertex.name in self.trifles:
            tiles = [undivided(self.graph, vertex, tasks)]
        elif kernel.is_product and isinstance(vertex.op, EinSum):
            tiles = merge(tasks, vertex.op, cores())
        tasks = [tile.task for tile in tiles]
        is_home = tasks[0].into.layout is Layout.HOME
        waits = [self._waits(vertex.inputs[k], [t.reads[k] for t in tasks]) for k in _read(tasks)]
        fold = self.folds.get(vertex.name)
        if fold is not None:
            waits += self._waits_to_add(fold, [task.box for task in tasks])
        numbers: list[int] = []
        seen: set[Box] = set()
        for i, tile in enumerate(tiles):
            after = tuple(sorted({number for wait in waits for number in wait[i]}))
            numbers.append(len(self.calls))
            first = tile.task.box not in seen
            seen.add(tile.task.box)
            self.calls.append(self._kernel_call(vertex, kernel, tile, after, first))
        work = operations(self.graph, vertex)
        self.flops += work
        self.seconds += work / (_PRODUCTS if kernel.is_product else _LOOPS)
        written = (tuple(numbers), tuple(task.box for task in tasks))
        if fold is not None:
            self.lies_in[fold.total] = self.key_of(fold.term)
            self.writers[fold.total] = written
            self.flops += vertex.elements
        elif is_home:
            self.shapes[vertex.name] = (vertex.shape, vertex.dtype)
            self.writers[vertex.name] = written
        else:
            self.shapes[vertex.name] = (vertex.shape, vertex.dtype)
            call_of = {(t.box, t.reads): n for t, n in zip(tasks, numbers, strict=True)}
            every = (task for task in step.tasks if isinstance(task, Compute))
            self.parts[vertex.name] = {t.device: call_of[t.box, t.reads] for t in every}

    def _kernel_call(
        self,
        vertex: Vertex,
        kernel: TileKernel,
        tile: Tile,
        after: tuple[int, ...],
        first: bool,
    ) -> Call:
        task = tile.task
        shapes = [self.graph[name].shape for name in vertex.inputs]
        operands = [
            (self.key_of(name), _where(box, shape))
            for name, box, shape in zip(vertex.inputs, task.reads, shapes, strict=True)
            if box is not None
        ]
        read = _reader(vertex, operands)
        lent = [None for box in task.reads if box is None]  # these come after those that are read
        out = _where(task.box, vertex.shape)
        name = vertex.name
        fold = self.folds.get(name)
        written: list[Key] = [name]
        if fold is not None:
            into = self.key_of(fold.term)
            written = [into]

            def run(memory: Memory) -> None:
                kernel.add(read(memory), memory.write(into, out))

        elif task.into.layout is Layout.HOME:

            def run(memory: Memory) -> None:
                tiles = read(memory)
                kernel.whole([*tiles, *lent], memory.write(name, out), memory.scalars)

        else:
            places = self._partial(vertex, kernel, task, first)
            written = [key for key, _ in places]

            def run(memory: Memory) -> None:
                tiles = read(memory)
                state = [memory.write(*place) for place in places]
                kernel.partial([*tiles, *lent], state, memory.scalars)

        uses = (*(source for source, _ in operands), *written)
        loads = loads_of(self.graph, vertex, task.reads)
        return Call(run, after, uses, name, "compute", tile.devices, task.box, loads)

    def _partial(
        self, vertex: Vertex, kernel: TileKernel, task: Compute, first: bool
    ) -> list[tuple[Key, Where]]:
        """Where a kernel call leaves its part of a sum: the first may do so in the result.

        Reductions begin with the first, so that they find it where they are to leave the sum.
        """
        if first and kernel.state_is_result:
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
        kernel = _LIBRARY.kernel(self.graph, vertex)
        call_of = self.parts[vertex.name]
        written: dict[Box, int] = {}
        for task in step.tasks:
            if not isinstance(task, Reduce) or task.box in written:
                continue
            if not volume(task.box) and vertex.elements:  # of an empty tensor one makes the array
                continue
            members = [call_of[device] for device in task.members]
            written[task.box] = len(self.calls)
            self.calls.append(self._reduce_call(vertex, kernel, task, members))
        self.writers[vertex.name] = (tuple(written.values()), tuple(written))

    def _reduce_call(
        self, vertex: Vertex, kernel: TileKernel, task: Reduce, members: Sequence[int]
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
            # No other reduction reads this block, so that the first part may take up the sum.
            into = [result] if in_place else [memory.read(key, inside) for key in keys[0]]
            for other in rest:
                kernel.combine(into, [memory.read(key, inside) for key in other])
            if not in_place:
                kernel.finish(into, result)

        uses = (name, *(key for state in (rest if in_place else keys) for key in state))
        after = tuple(sorted(set(members)))
        return Call(run, after, uses, name, "reduce", (task.device,), task.box)

    def _fill(self, name: str) -> None:
        """Make a tensor of its indices before it is first read."""
        vertex = self.graph[name]
        if not isinstance(vertex.op, Fill) or name in self.writers:
            return
        op, types = vertex.op, dict(self.graph.scalars)
        box = tuple((0, size) for size in vertex.shape)

        def run(memory: Memory) -> None:
            scalars = dict(zip(types, memory.scalars, strict=True))
            _LIBRARY.fill(op, memory.write(name, None), box, scalars, types)

        self.writers[name] = ((len(self.calls),), (box,))
        self.shapes[name] = (vertex.shape, vertex.dtype)
        self.calls.append(Call(run, (), (name,), name, "fill", (0,), box))

    def _waits(self, source: str, boxes: list[Box | None]) -> list[tuple[int, ...]]:
        """For each block of a tensor that is read, the calls that write to it."""
        if isinstance(self.graph[source].op, Input):
            return [()] * len(boxes)
        numbers, written = self.writers[source]
        needed = tuple(box for box in boxes if box is not None)
        return [tuple(numbers[w] for w in row) for row in _overlapping(needed, written)]

    def _waits_to_add(self, fold: Fold, boxes: list[Box]) -> list[list[tuple[int, ...]]]:
        """For each block that is added to, the calls that write it and those that still read it."""
        key = self.key_of(fold.term)
        users = tuple(n for n, call in enumerate(self.calls) if key in call.uses)
        return [self._waits(fold.term, [*boxes]), [users] * len(boxes)]


@lru_cache(maxsize=1 << 12)
def _overlapping(needed: tuple[Box, ...], written: tuple[Box, ...]) -> tuple[tuple[int, ...], ...]:
    """For each box the numbers of those that share elements with it."""
    return tuple(
        tuple(w for w, other in enumerate(written) if meet(box, other) is not None)
        for box in needed
    )


def _reader(vertex: Vertex, operands: list[tuple[str, Where]]) -> Callable[[Memory], list[Array]]:
    """What gives a kernel its tiles."""
    if not isinstance(vertex.op, Gather):
        return lambda memory: [memory.read(*operand) for operand in operands]
    axis, (table, index) = vertex.op.axis, operands
    return lambda memory: [*memory.read_rows(*table, axis, memory.read(*index))]


def _read(tasks: Sequence[Compute]) -> list[int]:
    return [k for k, box in enumerate(tasks[0].reads) if box is not None]


def _distinct(tasks: Sequence[Compute]) -> list[Compute]:
    """The first of all those that would compute the same, in the order of devices.

    So the first part of a sum is that of its lowest device, with which reductions begin.
    """
    found: dict[object, Compute] = {}
    for task in tasks:
        found.setdefault((task.box, task.reads), task)
    return list(found.values())


def _where(box: Box, shape: Sequence[int]) -> Where:
    """The tile's slices, None if it is the whole array."""
    if all((low, high) == (0, size) for (low, high), size in zip(box, shape, strict=True)):
        return None
    return tuple(slice(low, high) for low, high in box)

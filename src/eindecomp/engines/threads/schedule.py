"""The kernel calls of a tiled program: as plain data, and as functions of a run's memory.

A step is the calls of one vertex, none of which reads what another writes. Kernels are looked up
once, when the schedule is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from eindecomp.engines.threads.memory import Key, Memory, Where
from eindecomp.engines.threads.tiled import (
    APART,
    Reduction,
    SharedMemoryProgram,
    TiledVertex,
)
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill, Gather, Window
from eindecomp.graph.shown import see, shown_to
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.work import operations
from eindecomp.kernels.library import library_of
from eindecomp.lang.dtypes import Array, DType, Types
from eindecomp.lang.einsum import EinSum
from eindecomp.layout.boxes import Box, within
from eindecomp.tra.program.memory import Change

Block = tuple[Key, Where]
"""A tile of an array."""
Bound = Callable[[Memory], None]
Shapes = dict[Key, tuple[tuple[int, ...], DType]]
"""The shape and type of each array."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel call, and the blocks of arrays that it reads and writes."""

    kind: str
    """`compute`, `fill` or `reduce-scatter`."""
    vertex: str
    box: Box
    devices: tuple[int, ...]
    """The devices that hold the tile."""
    reads: tuple[Block | None, ...]
    """The operands in order, None for one that is not read; of a reduction, the partial results."""
    writes: tuple[Block, ...]
    """The result; or, of a partial result, each array of its state."""
    is_partial: bool = False
    """Of a tile, whether it is a partial result; of a reduction, whether its first part lies
    elsewhere than the result."""
    numbers: Box = ()
    """What a tile has of the labels that only windows have."""

    @property
    def uses(self) -> list[Key]:
        """The arrays that the call reads and writes."""
        return [block[0] for block in (*self.reads, *self.writes) if block is not None]


@dataclass(frozen=True, slots=True)
class Step:
    """The calls of one vertex, carried out side by side or one after another."""

    calls: tuple[KernelCall, ...]
    run: tuple[Bound, ...]
    """The function that carries out each call."""
    together: Bound | None
    """The function that carries out all calls side by side, without Python where kernels allow."""
    makes: tuple[Key, ...]
    """The arrays that these calls are the first to write."""
    drops: tuple[Key, ...]
    """The arrays that no later step uses."""
    is_worth_sharing: bool

    def is_shared(self, workers: int | None) -> bool:
        """Whether other threads take part: they were asked for, or gain time."""
        if len(self.calls) < 2 or workers == 1:
            return False
        return workers is not None or self.is_worth_sharing


@dataclass(frozen=True)
class CallSchedule:
    """The steps of a program and the arrays that they need."""

    graph: Graph
    steps: tuple[Step, ...]
    shapes: Shapes
    flops: int
    seconds: float
    """About how long one core would take."""

    @cached_property
    def calls(self) -> tuple[KernelCall, ...]:
        """The calls of all steps."""
        return tuple(call for step in self.steps for call in step.calls)

    @cached_property
    def tasks(self) -> int:
        """How many tiles devices compute and reduce, one for each device that holds it."""
        return sum(len(call.devices) for call in self.calls)

    @property
    def changes(self) -> Iterator[Change]:
        """The bytes that each step adds to those held, and those that it drops."""
        sizes = {key: prod(shape) * dtype.itemsize for key, (shape, dtype) in self.shapes.items()}
        for step in self.steps:
            fresh = sum(sizes[key] for key in step.makes)
            dropped = sum(sizes.get(key, 0) for key in step.drops)
            yield Change(step.calls[0].vertex, fresh, 0, dropped)

    def largest_load(self, stored: Collection[str]) -> int:
        """The most bytes that one call reads of inputs outside memory."""
        return max((self._load(call, stored) for call in self.calls), default=0)

    def _load(self, call: KernelCall, stored: Collection[str]) -> int:
        vertex, total = self.graph[call.vertex], 0
        shapes = [
            self.graph[name].shape
            if block is None or block[1] is None
            else tuple(part.stop - part.start for part in block[1])
            for name, block in zip(vertex.inputs, call.reads, strict=False)
        ]
        for name, block, shape in zip(vertex.inputs, call.reads, shapes, strict=False):
            if block is not None and block[0] in stored:
                elements = prod(shape)
                if isinstance(vertex.op, Gather) and block is call.reads[0] and elements:
                    # Rows that are not looked up are not read.
                    rows = shape[vertex.op.axis]
                    elements = elements // rows * min(rows, prod(shapes[1]))
                total += elements * self.graph[name].dtype.itemsize
        return total


def schedule(program: SharedMemoryProgram) -> CallSchedule:
    """The calls that compute a program, each after those whose results it reads."""
    graph = program.graph
    shapes: Shapes = {}
    groups = [calls for one in program.vertices for calls in _calls_of(graph, one, shapes) if calls]
    computed = (graph[tiled.name] for tiled in program.vertices)
    flops = sum(operations(graph, each) for each in computed if not isinstance(each.op, Fill))
    kept = {vertex.name for vertex in graph.outputs}
    last = {key: k for k, calls in enumerate(groups) for call in calls for key in call.uses}
    made: set[Key] = set()
    steps: list[Step] = []
    for number, calls in enumerate(groups):
        written = dict.fromkeys(key for call in calls for key, _ in call.writes)
        makes = tuple(key for key in written if key not in made)
        made.update(makes)
        uses = dict.fromkeys(key for call in calls for key in call.uses)
        drops = tuple(key for key in uses if key not in kept and last[key] == number)
        run = tuple(_bind(graph, call) for call in calls)
        is_whole = all(call.kind == "compute" and not call.is_partial for call in calls)
        together = _bind_together(graph, calls) if is_whole and len(calls) > 1 else None
        is_worth = program.seconds[calls[0].vertex] >= APART
        steps.append(Step(tuple(calls), run, together, makes, drops, is_worth))
    seconds = sum(program.seconds.values())
    return CallSchedule(graph, tuple(steps), shapes, flops, seconds)


def _calls_of(
    graph: Graph, tiled: TiledVertex, shapes: Shapes
) -> tuple[list[KernelCall], list[KernelCall]]:
    """The calls that compute the tiles of a vertex, and those that reduce them.

    Adds the shapes of the arrays that they write to `shapes`.
    """
    vertex = graph[tiled.name]
    shapes[vertex.name] = (vertex.shape, vertex.dtype)
    calls = [
        KernelCall(
            "fill" if isinstance(vertex.op, Fill) else "compute",
            vertex.name,
            tile.box,
            tile.devices,
            tuple(
                None if box is None else (name, _where(box, graph[name]))
                for name, box in zip(vertex.inputs, tile.reads, strict=True)
            ),
            _writes(graph, tiled, number, shapes),
            is_partial=tiled.is_partial,
            numbers=tile.numbers,
        )
        for number, tile in enumerate(tiled.tiles)
    ]
    return calls, [_reduction(vertex, each, calls) for each in tiled.reductions]


def _writes(graph: Graph, tiled: TiledVertex, number: int, shapes: Shapes) -> tuple[Block, ...]:
    """The blocks that a tile is written to; a partial result has arrays of its own."""
    vertex, box = graph[tiled.name], tiled.tiles[number].box
    if tiled.is_partial:
        kernel = library_of(np.ndarray).kernel(graph, vertex)
        # The first part of a sum may lie where the sum is to go.
        is_later = any(other.box == box for other in tiled.tiles[:number])
        if is_later or not _is_result(vertex, kernel.state):
            shape = tuple(high - low for low, high in box)
            keys: list[Key] = [(vertex.name, number, k) for k in range(len(kernel.state))]
            shapes |= {key: (shape, of) for key, of in zip(keys, kernel.state, strict=True)}
            return tuple((key, None) for key in keys)
    return ((vertex.name, _where(box, vertex)),)


def _is_result(vertex: Vertex, state: Types) -> bool:
    """Whether a state is the result: one array of its type, with nothing to finish."""
    agg = vertex.op.agg if isinstance(vertex.op, EinSum) else None
    return state == (vertex.dtype,) and (agg is None or agg.finish is None)


def _reduction(vertex: Vertex, reduction: Reduction, calls: Sequence[KernelCall]) -> KernelCall:
    """The call that combines partial results in the order of the members."""
    members = [calls[place] for place in reduction.members]
    # An index of no dimensions would take the number, not the array.
    inside = within(reduction.box, members[0].box) if reduction.box else None
    in_place = members[0].writes[0][0] == vertex.name
    parts = members[1:] if in_place else members
    return KernelCall(
        "reduce-scatter",
        vertex.name,
        reduction.box,
        (reduction.device,),
        tuple((key, inside) for part in parts for key, _ in part.writes),
        ((vertex.name, _where(reduction.box, vertex)),),
        is_partial=not in_place,
    )


def _box(where: Where, tensor: Vertex) -> Box:
    """The tile that slices cut out, or the whole array."""
    whole = (slice(0, n) for n in tensor.shape)
    return tuple((part.start, part.stop) for part in (where or whole))


def _where(box: Box, tensor: Vertex) -> Where:
    """The slices of a tile, None if it is the whole array."""
    if all((low, high) == (0, n) for (low, high), n in zip(box, tensor.shape, strict=True)):
        return None
    return tuple(slice(low, high) for low, high in box)


# Calls as functions of a run's memory


def _bind(graph: Graph, call: KernelCall) -> Bound:
    """The function that carries out a call."""
    vertex = graph[call.vertex]
    if isinstance(vertex.op, Fill):
        return _fill(graph, vertex.op, call)
    if call.kind == "reduce-scatter":
        return _reduce(graph, vertex, call)
    return _compute(graph, vertex, call)


def _compute(graph: Graph, vertex: Vertex, call: KernelCall) -> Bound:
    kernel = library_of(np.ndarray).kernel(graph, vertex)
    read = _reader(graph, vertex, call)
    key, where = call.writes[0]
    if not call.is_partial:

        def run(memory: Memory) -> None:
            kernel.whole(read(memory), memory.write(key, where), memory.scalars)

    else:

        def run(memory: Memory) -> None:
            operands = read(memory)
            state = [memory.write(*block) for block in call.writes]
            kernel.partial(operands, state, memory.scalars)

    return run


def _bind_together(graph: Graph, calls: Sequence[KernelCall]) -> Bound:
    """The function that carries out calls for whole tiles of one vertex side by side."""
    vertex = graph[calls[0].vertex]
    kernel = library_of(np.ndarray).kernel(graph, vertex)
    tiles = [(_reader(graph, vertex, call), *call.writes[0]) for call in calls]

    def run(memory: Memory) -> None:
        given = [(read(memory), memory.write(key, where)) for read, key, where in tiles]
        kernel.wholes(given, memory.scalars)

    return run


def _reader(
    graph: Graph, vertex: Vertex, call: KernelCall
) -> Callable[[Memory], Sequence[Array | None]]:
    """The function that reads a kernel's operands from memory."""
    reads = call.reads
    if vertex.windows or isinstance(vertex.op, Window):
        pairs = zip(vertex.inputs, reads, strict=True)
        boxes = [block and _box(block[1], graph[name]) for name, block in pairs]
        shown = shown_to(vertex, boxes, call.box, call.numbers)
        library = library_of(np.ndarray)
        kernel = library.kernel(graph, vertex)
        return lambda memory: see(
            library, kernel, [block and memory.read(*block) for block in reads], shown
        )
    if isinstance(vertex.op, Gather):
        axis = vertex.op.axis
        table, index = (block for block in reads if block is not None)
        return lambda memory: [*memory.read_rows(*table, axis, memory.read(*index))]
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

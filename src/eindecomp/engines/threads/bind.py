"""Turns calls, which are data, into functions of a run's memory: the kernels are found once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.graph.ops import Fill, Gather
from eindecomp.kernels.library import library_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.engines.threads.call import Block, KernelCall
    from eindecomp.engines.threads.memory import Arrays
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex

    Array = np.ndarray[Any, Any]
    Bound = Callable[[Arrays], None]


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

        def run(memory: Arrays) -> None:
            kernel.add(read(memory), memory.write(key, where))

    elif not call.is_partial:

        def run(memory: Arrays) -> None:
            kernel.whole(read(memory), memory.write(key, where), memory.scalars)

    else:

        def run(memory: Arrays) -> None:
            operands = read(memory)
            state = [memory.write(*block) for block in call.writes]
            kernel.partial(operands, state, memory.scalars)

    return run


def bind_together(graph: Graph, calls: Sequence[KernelCall]) -> Bound:
    """What carries out calls for whole tiles of one vertex, at once."""
    vertex = graph[calls[0].vertex]
    kernel = library_of(np.ndarray).kernel(graph, vertex)
    tiles = [(_reader(vertex, call.reads), *call.writes[0]) for call in calls]
    adds = calls[0].adds

    def run(memory: Arrays) -> None:
        kernel.wholes(
            [(read(memory), memory.write(key, where)) for read, key, where in tiles],
            memory.scalars,
            add=adds,
        )

    return run


def _reader(
    vertex: Vertex, reads: tuple[Block | None, ...]
) -> Callable[[Arrays], list[Array | None]]:
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

    def run(memory: Arrays) -> None:
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

    def run(memory: Arrays) -> None:
        scalars = dict(zip(types, memory.scalars, strict=True))
        library.fill(op, memory.write(key, where), call.box, scalars, types)

    return run

"""Partial results of the members of a group, combined: each member makes a block of the result.

Members exchange blocks of their partial results, and each combines those of its own in the order of
the plan, so that every run and every engine rounds alike. Where that is not asked for, sums that
the transport can make itself are timed both ways when the row is bound, and the faster one is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.spmd.exchange import BlockExchange, Blocks, blocks_of
from eindecomp.engines.spmd.rank_memory import RankMemory
from eindecomp.engines.spmd.row_places import BoundStep, ending
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import SUM
from eindecomp.layout.boxes import shape_of, volume, within
from eindecomp.layout.tiling import Tiling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.engines.spmd.rank_arrays import RankArrays
    from eindecomp.engines.spmd.rank_memory import Room
    from eindecomp.engines.spmd.row_places import RowPlaces
    from eindecomp.engines.spmd.transport import Group
    from eindecomp.layout.boxes import Box
    from eindecomp.tra.program.device_row import DeviceStep
    from eindecomp.tra.program.steps import ReduceScatter

    Array = Any

_TIMES = 5


def bind_reduction(
    places: RowPlaces, number: int, step: ReduceScatter, own: DeviceStep, deterministic: bool
) -> BoundStep:
    """What makes a rank's block of a result; all members of its group bind it together."""
    room = places.room(step.into)
    ordered = _ordered(places, number, step, own, room)
    summed = None if deterministic else _summed(places, number, step, own, room)
    if summed is None or not faster(places, step, summed, ordered):
        return ordered
    return summed


def faster(places: RowPlaces, step: ReduceScatter, way: BoundStep, other: BoundStep) -> bool:
    """Whether one way takes less than another, by the slowest of all ranks."""
    seconds = np.array([round(1e9 * _seconds(places, step, each)) for each in (way, other)])
    own, others = places.transport.most(seconds).tolist()
    return own < others


def _ordered(
    places: RowPlaces, number: int, step: ReduceScatter, own: DeviceStep, room: Room
) -> BoundStep:
    """Members exchange blocks of their partial results; each combines those of its own."""
    partial, home = step.source, step.into
    types, arrays = places.program.buffers[partial].types, places.arrays
    empty = arrays.library.empty
    parts = _parts(places, number, step, own)
    combine = _combine(places, step, own, parts)
    finish = ending(number, own.exchange.elements_in * places.program.buffers[partial].item)

    def begin(memory: RankMemory) -> None:
        memory.make(home, room)
        stacks = [empty(parts.stack, of) for of in types]
        memory.grow(sum([stack.nbytes for stack in stacks]))
        memory.parts[number] = stacks
        memory.started[number] = [
            parts.exchange.start(arrays, array, stack)
            for array, stack in zip(memory.arrays(partial), stacks, strict=True)
        ]

    def end(memory: RankMemory) -> None:
        finish(memory)
        stacks = memory.parts.pop(number)
        combine(memory, stacks)
        memory.bytes_held -= sum([stack.nbytes for stack in stacks])

    return BoundStep(begin, end)


@dataclass(frozen=True, slots=True)
class _Parts:
    """How the partial results of others come to a rank: one behind another."""

    exchange: BlockExchange
    others: tuple[int, ...]
    stack: tuple[int, ...]
    """The shape of the array that they come to."""


def _parts(places: RowPlaces, number: int, step: ReduceScatter, own: DeviceStep) -> _Parts:
    group, box = places.group(step.axes), own.box
    others = tuple(rank for rank in group.ranks if rank != places.rank)
    sides = tuple((0, high - low) for low, high in box) if volume(box) else ()
    boxes: list[Box | None] = [
        ((others.index(rank), others.index(rank) + 1), *sides)
        if rank != places.rank and volume(box)
        else None
        for rank in group.ranks
    ]
    whole: Box = ((0, len(others)), *sides)
    sends = {transfer.peer: transfer.box for transfer in own.exchange.sends}
    out = blocks_of([sends.get(rank) for rank in group.ranks], places.box(step.source))
    exchange = BlockExchange(group, group.ranks, out, blocks_of(boxes, whole), (), number)
    return _Parts(exchange, others, shape_of(whole))


def _combine(
    places: RowPlaces, step: ReduceScatter, own: DeviceStep, parts: _Parts
) -> Callable[[RankMemory, Sequence[Array]], None]:
    """What makes the rank's block of the result of its own part and those of others."""
    if not volume(own.box):
        return _nothing
    graph, partial, home = places.program.graph, step.source, step.into
    kernel = places.library.kernel(graph, graph[step.vertex])
    here, there = within(own.box, places.box(partial)), within(own.box, places.box(home))
    order = [None if r == places.rank else parts.others.index(r) for r in own.members]

    def combine(memory: RankMemory, stacks: Sequence[Array]) -> None:
        # What was sent is of no more use: the sum may be made in it.
        mine = tuple([array[here] for array in memory.arrays(partial)])
        states = [mine if k is None else tuple([s[k, ...] for s in stacks]) for k in order]
        for state in states[1:]:
            kernel.combine(states[0], state)
        kernel.finish(states[0], memory.array(home)[there])

    return combine


def _nothing(memory: RankMemory, stacks: Sequence[Array]) -> None:
    """What there is to do for an empty block."""
    del memory, stacks


# Sums that the transport makes


def _summed(
    places: RowPlaces, number: int, step: ReduceScatter, own: DeviceStep, room: Room
) -> BoundStep | None:
    """The same by the transport's own collective; None if it has none for this."""
    graph, program = places.program.graph, places.program
    op, partial, home = graph[step.vertex].op, step.source, step.into
    dtype = program.buffers[partial].types[0]
    if not isinstance(op, EinSum) or op.agg != SUM:
        return None
    if not places.transport.sums(dtype, equal=_are_equal(places, step)):
        return None
    group, kernel = places.group(step.axes), places.library.kernel(graph, graph[step.vertex])
    sends = {transfer.peer: transfer.box for transfer in own.exchange.sends}
    boxes = [own.box if rank == places.rank else sends.get(rank) for rank in group.ranks]
    blocks = blocks_of(boxes, places.box(partial))
    there = within(own.box, places.box(home)) if volume(own.box) else ()
    finish = ending(number, own.exchange.elements_in * program.buffers[partial].item)

    def begin(memory: RankMemory) -> None:
        memory.make(home, room)
        into = places.library.empty(shape_of(own.box), dtype)
        memory.grow(into.nbytes)
        memory.parts[number] = [into]
        out = _one_after_another(memory.array(partial), blocks, places.arrays)
        memory.started[number] = [_Sum(group, out, into, blocks.counts)]

    def end(memory: RankMemory) -> None:
        finish(memory)
        [found] = memory.parts.pop(number)
        if volume(own.box):
            kernel.finish((found,), memory.array(home)[there])
        memory.bytes_held -= found.nbytes

    return BoundStep(begin, end)


def _are_equal(places: RowPlaces, step: ReduceScatter) -> bool:
    """Whether blocks of all ranks are of one size, which all find alike."""
    program = places.program
    blocks = Tiling(program.buffers[step.into].tiling.cut, step.split)
    mesh = program.mesh
    return len({volume(blocks.box(mesh, rank)) for rank in range(mesh.devices)}) == 1


class _Sum:
    """A sum that the transport has under way."""

    def __init__(self, group: Group, out: Array, into: Array, counts: Sequence[int]) -> None:
        self._kept = out, into
        self._pending = group.reduce_scatter(out, into.reshape(-1), counts)

    def finish(self) -> None:
        """Wait for it."""
        self._pending.wait()


def _one_after_another(array: Array, blocks: Blocks, arrays: RankArrays) -> Array:
    """The blocks of all members in a flat array, which is the array itself if they lie so."""
    if blocks.spans(array, arrays) == blocks.apart:
        return array.reshape(-1)
    flat = arrays.flat(sum(blocks.counts), array)
    blocks.copy(array, flat, arrays.library.copy, into_flat=True)
    return flat


def _seconds(places: RowPlaces, step: ReduceScatter, way: BoundStep) -> float:
    """The least that a way takes, of a few times."""
    program, arrays = places.program, places.arrays
    sources, received = arrays.sources(), [0] * len(program.steps)
    memory = RankMemory({}, {}, [None] * len(program.buffers), sources, received=received)
    shape = shape_of(places.box(step.source))
    found: list[float] = []
    for _ in range(_TIMES):
        memory.held[step.source] = tuple(
            arrays.library.from_numpy(np.zeros(shape, dtype))
            for dtype in program.buffers[step.source].types
        )
        arrays.settle()
        places.transport.total(np.zeros(1, np.int64))
        start = perf_counter()
        way.begin(memory)
        assert way.end is not None  # noqa: S101
        way.end(memory)
        arrays.settle()
        found.append(perf_counter() - start)
    return min(found)

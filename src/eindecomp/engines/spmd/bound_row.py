"""A rank's row of a program as functions of its memory: everything that can be known is looked up.

Each step becomes a function that does all of it, or, for communication, one that begins it and one
that ends it. Groups of ranks are asked for in the order of the program, which is the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.spmd.direct import (
    DirectExchange,
    block_reads,
    is_worth_it,
    neighbours_of,
)
from eindecomp.engines.spmd.exchange import (
    BlockExchange,
    BlockGather,
    blocks_of,
    exchange_of,
    gather_of,
)
from eindecomp.engines.spmd.rank_memory import Room
from eindecomp.engines.spmd.tile_call import TileCall
from eindecomp.graph.ops import Fill
from eindecomp.lang.scalar import used_scalars
from eindecomp.tra.boxes import meet, shape_of, shares, volume, within
from eindecomp.tra.program.buffers import Role
from eindecomp.tra.program.memory import is_view
from eindecomp.tra.program.patterns import Exchanged, Gathered
from eindecomp.tra.program.steps import (
    AllGather,
    Compute,
    Free,
    Generate,
    Load,
    Move,
    ReduceScatter,
)
from eindecomp.tra.program.tiling import group_along

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eindecomp.engines.spmd.rank_memory import RankMemory
    from eindecomp.engines.spmd.transport import Group, Transport
    from eindecomp.kernels.library import KernelLibrary
    from eindecomp.tra.boxes import Box
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.row import DeviceRow, DeviceStep

    Array = np.ndarray[Any, Any]
    Do = Callable[[RankMemory], None]
    Loader = Callable[[RankMemory, int, Box], None]
    Communication = BlockExchange | BlockGather | DirectExchange


_SMALL, _LITTLE = 1 << 16, 1 << 24
"""Bytes of a buffer that is kept from run to run, and of all that are."""


@dataclass(frozen=True, slots=True)
class BoundStep:
    """What a rank does in a step: `begin`, and for communication what ends it."""

    begin: Do
    end: Do | None = None


def bind_row(
    program: Program, row: DeviceRow, transport: Transport, library: KernelLibrary, load: Loader
) -> list[BoundStep]:
    """The functions of all steps; `load` takes a block of an input. All ranks bind together."""
    neighbours = neighbours_of(transport)
    binder = _Binder(program, row.device, transport, library, load, neighbours)
    return [binder.bind(number, own) for number, own in enumerate(row.steps)]


@dataclass(slots=True)
class _Binder:
    program: Program
    rank: int
    transport: Transport
    library: KernelLibrary
    load: Loader
    neighbours: Mapping[int, int]
    """The processes of the ranks whose memory can be read."""
    left: int = _LITTLE
    """Bytes that may be kept from run to run still."""
    views: set[int] = field(default_factory=set[int])
    """The buffers of which the rank has a view of another."""

    def bind(self, number: int, own: DeviceStep) -> BoundStep:
        """The functions of a step."""
        step = own.step
        match step:
            case Load():
                load, into, box = self.load, step.into, own.box
                return BoundStep(lambda memory: load(memory, into, box))
            case Generate():
                return BoundStep(self._generate(step, own))
            case Compute():
                return BoundStep(self._compute(step, own))
            case Move():
                return self._move(number, step, own)
            case ReduceScatter():
                return self._reduce(number, step, own)
            case AllGather():
                return self._all_gather(number, step)
            case Free():
                return BoundStep(self._free(step))

    # What it does alone

    def _box(self, buffer: int) -> Box:
        return self.program.buffers[buffer].box(self.program.mesh, self.rank)

    def _room(self, number: int) -> Room:
        """What arrays a buffer has; small ones are kept from run to run, unless they are given."""
        shape = shape_of(self._box(number))
        shapes = tuple((shape, dtype) for dtype in self.program.buffers[number].types)
        room = Room(shapes, sum(prod(shape) * dtype.itemsize for _, dtype in shapes))
        is_ours = number not in self.program.outputs.values()
        if is_ours and room.nbytes <= min(_SMALL, self.left):
            self.left -= room.nbytes
            room.kept = tuple(np.empty(shape, dtype) for shape, dtype in shapes)
        return room

    def _generate(self, step: Generate, own: DeviceStep) -> Do:
        graph, library = self.program.graph, self.library
        op = graph[self.program.buffers[step.into].tensor].op
        assert isinstance(op, Fill)  # noqa: S101
        into, room, box = step.into, self._room(step.into), own.box
        if room.kept is not None and not used_scalars(op.value):
            library.fill(op, room.kept[0], box, {}, {})
            return lambda memory: _hold(memory, into, room)

        def generate(memory: RankMemory) -> None:
            [out] = memory.make(into, room)
            library.fill(op, out, box, memory.scalars, graph.scalars)

        return generate

    def _compute(self, step: Compute, own: DeviceStep) -> Do:
        graph = self.program.graph
        call = TileCall(self.library.kernel(graph, graph[step.vertex]), step.is_partial)
        reads = [
            None if read is None or box is None else self._read(read.buffer, box)
            for read, box in zip(step.reads, own.reads, strict=True)
        ]
        into, room = step.into, self._room(step.into)

        def compute(memory: RankMemory) -> None:
            operands = [None if read is None else read(memory) for read in reads]
            call(operands, memory.make(into, room), memory.values)

        return compute

    def _read(self, buffer: int, box: Box) -> Callable[[RankMemory], Array]:
        """What gives a block of what the rank holds."""
        held = self._box(buffer)
        if box == held:
            return lambda memory: memory.array(buffer)
        if not volume(box):
            nothing = np.empty(shape_of(box), self.program.buffers[buffer].types[0])
            return lambda _: nothing
        where = within(box, held)
        return lambda memory: memory.array(buffer)[where]

    def _free(self, step: Free) -> Do:
        number, buffer = step.buffer, self.program.buffers[step.buffer]
        # Blocks of inputs belong to whoever gave them, and views to what they are views of.
        is_own = buffer.role is not Role.GIVEN and number not in self.views
        owned = buffer.nbytes(self.program.mesh, self.rank) if is_own else 0
        return lambda memory: memory.drop(number, owned)

    # What it does with others

    def _move(self, number: int, step: Move, own: DeviceStep) -> BoundStep:
        source, into = step.source, step.into
        group, moved = self._group_of(step), own.exchange
        is_here = is_view(self.program, self.program.buffers[into], self.rank)
        if group is None and is_here and volume(own.box):
            # The rank has all that it wants; others may lack some of it.
            self.views.add(into)
            where = within(own.box, self._box(source))
            exchange = self._exchange(number, step, replace(own, exchange=replace(moved, kept=())))

            def begin(memory: RankMemory) -> None:
                memory.held[into] = (memory.array(source)[where],)
                self._start(memory, number, exchange, source, into)

            return BoundStep(begin, self._ending(number, 0) if moved.sends else None)
        exchange, room = self._exchange(number, step, own, group), self._room(into)

        def make_and_begin(memory: RankMemory) -> None:
            memory.make(into, room)
            self._start(memory, number, exchange, source, into)

        coming = moved.elements_in * self.program.buffers[into].item
        return BoundStep(make_and_begin, self._ending(number, coming))

    def _start(
        self,
        memory: RankMemory,
        number: int,
        exchange: Communication,
        source: int,
        into: int,
    ) -> None:
        arrays = memory.array(source), memory.array(into)
        memory.started[number] = [exchange.start(self.transport, *arrays, self.library.copy)]

    @staticmethod
    def _ending(number: int, coming: int) -> Do:
        """What waits for the communication of a step, by which so many bytes come."""

        def end(memory: RankMemory) -> None:
            for started in memory.started.pop(number):
                started.finish()
            memory.received[number] += coming

        return end

    def _group_of(self, step: Move) -> Group | None:
        """The ranks among which a move is a collective; None if it is none."""
        match step.pattern:
            case Gathered(axes) | Exchanged(axes):
                return self._group(sum(1 << axis for axis in axes))
            case _:
                return None

    def _group(self, axes: int) -> Group:
        mesh = self.program.mesh
        groups = {group_along(mesh, axes, device): None for device in range(mesh.devices)}
        return self.transport.group(tuple(groups))

    def _exchange(
        self, number: int, step: Move, own: DeviceStep, group: Group | None = None
    ) -> Communication:
        held, wanted = self._box(step.source), own.box
        if group is None or not isinstance(step.pattern, Gathered):
            direct = None if group is None else self._direct(step, own, group)
            return direct or exchange_of(group, own.exchange, held, wanted, number)
        shared = meet(held, wanted)
        mine = tuple(slice(0, 0) for _ in held) if shared is None else within(shared, held)
        source, mesh = self.program.buffers[step.source], self.program.mesh
        boxes = [meet(source.box(mesh, rank), wanted) for rank in group.ranks]
        return gather_of(group, mine, blocks_of(boxes, wanted))

    def _direct(self, step: Move, own: DeviceStep, group: Group) -> DirectExchange | None:
        """An all-to-all by reading out of the memory of ranks on this machine, if that is faster.

        All members find the same answer.
        """
        processes = [self.neighbours.get(rank) for rank in group.ranks]
        source, into = (self.program.buffers[k] for k in (step.source, step.into))
        held = [source.box(self.program.mesh, rank) for rank in group.ranks]
        wanted = [into.box(self.program.mesh, rank) for rank in group.ranks]
        reachable = [process for process in processes if process is not None]
        if len(reachable) < len(processes) or not is_worth_it(held, wanted, into.item):
            return None
        place = group.ranks.index(self.rank)
        reads = block_reads(held, own.box, place, reachable, into.item)
        kept = [
            (within(each.box, held[place]), within(each.box, own.box)) for each in own.exchange.kept
        ]
        return DirectExchange(group, reads, tuple(kept))

    def _all_gather(self, number: int, step: AllGather) -> BoundStep:
        buffer, box = step.buffer, self._box(step.buffer)
        group = self._group(step.axes)
        gather = gather_of(group, None, blocks_of(shares(box, len(group.ranks)), box))
        counts = dict(zip(group.ranks, gather.into.counts, strict=True))
        coming = sum(counts.values()) - counts[self.rank]

        def begin(memory: RankMemory) -> None:
            self._start(memory, number, gather, buffer, buffer)

        return BoundStep(begin, self._ending(number, coming * self.program.buffers[buffer].item))

    def _reduce(self, number: int, step: ReduceScatter, own: DeviceStep) -> BoundStep:
        """Members exchange blocks of their partial results; each combines those of its own."""
        partial, home = step.source, step.into
        types, room = self.program.buffers[partial].types, self._room(home)
        parts = self._parts(number, step, own)
        combine = self._combine(step, own, parts)
        coming = own.exchange.elements_in * self.program.buffers[partial].item
        finish = self._ending(number, coming)

        def begin(memory: RankMemory) -> None:
            memory.make(home, room)
            stacks = [np.empty(parts.stack, of) for of in types]
            memory.grow(sum(stack.nbytes for stack in stacks))
            memory.parts[number] = stacks
            memory.started[number] = [
                parts.exchange.start(self.transport, array, stack, self.library.copy)
                for array, stack in zip(memory.arrays(partial), stacks, strict=True)
            ]

        def end(memory: RankMemory) -> None:
            finish(memory)
            stacks = memory.parts.pop(number)
            combine(memory, stacks)
            memory.bytes_held -= sum(stack.nbytes for stack in stacks)

        return BoundStep(begin, end)

    def _parts(self, number: int, step: ReduceScatter, own: DeviceStep) -> _Parts:
        group, box = self._group(step.axes), own.box
        others = tuple(rank for rank in group.ranks if rank != self.rank)
        sides = tuple((0, high - low) for low, high in box) if volume(box) else ()
        boxes: list[Box | None] = [
            ((others.index(rank), others.index(rank) + 1), *sides)
            if rank != self.rank and volume(box)
            else None
            for rank in group.ranks
        ]
        whole: Box = ((0, len(others)), *sides)
        sends = {transfer.peer: transfer.box for transfer in own.exchange.sends}
        out = blocks_of([sends.get(rank) for rank in group.ranks], self._box(step.source))
        exchange = BlockExchange(group, group.ranks, out, blocks_of(boxes, whole), (), number)
        return _Parts(exchange, others, shape_of(whole))

    def _combine(
        self, step: ReduceScatter, own: DeviceStep, parts: _Parts
    ) -> Callable[[RankMemory, Sequence[Array]], None]:
        """What makes the rank's block of the result of its own part and those of others."""
        if not volume(own.box):
            return _nothing
        graph, partial, home = self.program.graph, step.source, step.into
        kernel = self.library.kernel(graph, graph[step.vertex])
        here, there = within(own.box, self._box(partial)), within(own.box, self._box(home))
        order = [None if r == self.rank else parts.others.index(r) for r in own.members]

        def combine(memory: RankMemory, stacks: Sequence[Array]) -> None:
            # What was sent is of no more use: the sum may be made in it.
            mine = tuple(array[here] for array in memory.arrays(partial))
            states = [mine if k is None else tuple(s[k, ...] for s in stacks) for k in order]
            for state in states[1:]:
                kernel.combine(states[0], state)
            kernel.finish(states[0], memory.array(home)[there])

        return combine


@dataclass(frozen=True, slots=True)
class _Parts:
    """How the partial results of others come to a rank: one behind another."""

    exchange: BlockExchange
    others: tuple[int, ...]
    stack: tuple[int, ...]
    """The shape of the array that they come to."""


def _hold(memory: RankMemory, buffer: int, room: Room) -> None:
    """Hold what was filled once and for all."""
    memory.make(buffer, room)


def _nothing(memory: RankMemory, stacks: Sequence[Array]) -> None:
    """What there is to do for an empty block."""
    del memory, stacks

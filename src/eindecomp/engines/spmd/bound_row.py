"""A rank's row of a program as functions of its memory: everything that can be known is looked up.

Each step becomes a function that does all of it, or, for communication, one that begins it and one
that ends it. Groups of ranks are asked for in the order of the program, which is the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eindecomp.engines.spmd.exchange import (
    BlockExchange,
    MappedBlock,
    MappedExchange,
    blocks_of,
    exchange_of,
)
from eindecomp.engines.spmd.rank_memory import BoundStep, RowPlaces, ending, read_in_place
from eindecomp.graph.ops import Fill
from eindecomp.lang.scalar import used_scalars
from eindecomp.layout.boxes import shape_of, volume, within
from eindecomp.layout.cut import bits_of
from eindecomp.layout.tiling import group_along
from eindecomp.tra.program.memory import is_view
from eindecomp.tra.program.steps import (
    AllGather,
    Compute,
    Exchanged,
    Free,
    Gathered,
    Generate,
    Load,
    Move,
    ReduceScatter,
    Role,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eindecomp.engines.spmd.protocols import RankArrays
    from eindecomp.engines.spmd.rank_memory import Do, RankMemory
    from eindecomp.layout.boxes import Box
    from eindecomp.tra.program.device_row import DeviceRow, DeviceStep
    from eindecomp.tra.program.program import Program

    Array = Any
    Loader = Callable[[RankMemory, int, Box], None]
    Communication = BlockExchange | MappedExchange


def bind_row(program: Program, row: DeviceRow, arrays: RankArrays, load: Loader) -> list[BoundStep]:
    """The functions of all steps; `load` takes a block of an input. All ranks bind together."""
    neighbours = arrays.neighbours()
    shared = read_in_place(program) if len(neighbours) > 1 else frozenset[int]()
    places = RowPlaces(program, row.device, arrays, shared)
    binder = _Binder(places, load, neighbours)
    return [binder.bind(number, own) for number, own in enumerate(row.steps)]


@dataclass(slots=True)
class _Binder:
    places: RowPlaces
    load: Loader
    neighbours: Mapping[int, int]
    """The processes of the ranks whose memory can be read."""
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
                return self._all_gather(number, step, own)
            case Free():
                return BoundStep(self._free(step))

    # What it does alone

    def _generate(self, step: Generate, own: DeviceStep) -> Do:
        graph, library = self.places.program.graph, self.places.library
        op = graph[self.places.program.buffers[step.into].tensor].op
        assert isinstance(op, Fill)  # noqa: S101
        into, room, box = step.into, self.places.room(step.into), own.box
        if room.kept is not None and not used_scalars(op.value):
            library.fill(op, room.kept[0], box, {}, {})  # once and for all

            def hold(memory: RankMemory) -> None:
                memory.make(into, room)

            return hold

        def generate(memory: RankMemory) -> None:
            [out] = memory.make(into, room)
            library.fill(op, out, box, memory.scalars, graph.scalars)

        return generate

    def _compute(self, step: Compute, own: DeviceStep) -> Do:
        graph = self.places.program.graph
        kernel = self.places.library.kernel(graph, graph[step.vertex])
        reads = [
            None if read is None or box is None else self._read(read.buffer, box)
            for read, box in zip(step.reads, own.reads, strict=True)
        ]
        into, room = step.into, self.places.room(step.into)

        def compute(memory: RankMemory) -> None:
            operands = [None if read is None else read(memory) for read in reads]
            outputs = memory.make(into, room)
            if step.is_partial:
                kernel.partial(operands, outputs, memory.values)
            else:
                kernel.whole(operands, outputs[0], memory.values)

        return compute

    def _read(self, buffer: int, box: Box) -> Callable[[RankMemory], Array]:
        """What gives a block of what the rank holds."""
        held = self.places.box(buffer)
        if box == held:
            return lambda memory: memory.array(buffer)
        if not volume(box):
            of = self.places.program.buffers[buffer].types[0]
            nothing = self.places.library.empty(shape_of(box), of)
            return lambda _: nothing
        where = within(box, held)
        return lambda memory: memory.array(buffer)[where]

    def _free(self, step: Free) -> Do:
        number, buffer = step.buffer, self.places.program.buffers[step.buffer]
        name, tiling = buffer.tensor, buffer.tiling
        is_given = buffer.role is Role.GIVEN
        if is_given and all(vertex.name != name for vertex in self.places.program.graph.outputs):
            return lambda memory: memory.give_up(number, name, tiling)
        is_own = not is_given and number not in self.views  # views belong to what they are of
        owned = buffer.nbytes(self.places.program.mesh, self.places.rank) if is_own else 0
        return lambda memory: memory.drop(number, owned)

    # What it does with others

    def _move(self, number: int, step: Move, own: DeviceStep) -> BoundStep:
        source, into, moved = step.source, step.into, own.exchange
        is_here = is_view(self.places.program, self.places.program.buffers[into], self.places.rank)
        if is_here and volume(own.box) and not isinstance(step.pattern, Gathered | Exchanged):
            # The rank has all that it wants; others may lack some of it.
            self.views.add(into)
            where = within(own.box, self.places.box(source))
            exchange = self._exchange(number, step, replace(own, exchange=replace(moved, kept=())))

            def begin(memory: RankMemory) -> None:
                memory.held[into] = (memory.array(source)[where],)
                self._start(memory, number, exchange, source, into)

            return BoundStep(begin, ending(number) if moved.sends else None)
        exchange, room = self._exchange(number, step, own), self.places.room(into)

        def make_and_begin(memory: RankMemory) -> None:
            memory.make(into, room)
            self._start(memory, number, exchange, source, into)

        return BoundStep(make_and_begin, ending(number))

    def _start(
        self,
        memory: RankMemory,
        number: int,
        exchange: Communication,
        source: int,
        into: int,
    ) -> None:
        arrays = memory.array(source), memory.array(into)
        memory.started[number] = [exchange.start(self.places.arrays, *arrays)]

    def _exchange(self, number: int, step: Move, own: DeviceStep) -> Communication:
        """How blocks travel; in an all-to-all of ranks of one machine they are read where they lie.

        All ranks of the all-to-all find the same answer.
        """
        held, wanted, moved = self.places.box(step.source), own.box, own.exchange
        source, mesh = self.places.program.buffers[step.source], self.places.program.mesh
        group: tuple[int, ...] = ()
        if isinstance(step.pattern, Gathered | Exchanged):
            group = group_along(mesh, bits_of(step.pattern.axes), self.places.rank)
        can_read = isinstance(step.pattern, Exchanged) and self.neighbours.keys() >= {*group}
        if not can_read or step.source not in self.places.shared:
            return exchange_of(moved, held, wanted, number, group)
        reads: list[MappedBlock] = []
        for peer, box in ((each.peer, each.box) for each in moved.receives):
            theirs = source.box(mesh, peer)
            where = within(box, theirs), within(box, wanted)
            reads.append(MappedBlock(peer, self.neighbours[peer], shape_of(theirs), *where))
        kept = [(within(each.box, held), within(each.box, wanted)) for each in moved.kept]
        readers = tuple(each.peer for each in moved.sends)
        return MappedExchange(tuple(reads), readers, tuple(kept), number)

    def _all_gather(self, number: int, step: AllGather, own: DeviceStep) -> BoundStep:
        buffer, box = step.buffer, self.places.box(step.buffer)
        # The rank's own share is in its place.
        group = group_along(self.places.program.mesh, step.axes, self.places.rank)
        exchange = exchange_of(replace(own.exchange, kept=()), box, box, number, group)

        def begin(memory: RankMemory) -> None:
            self._start(memory, number, exchange, buffer, buffer)

        return BoundStep(begin, ending(number))

    def _reduce(self, number: int, step: ReduceScatter, own: DeviceStep) -> BoundStep:
        """Members exchange blocks of their partial results; each combines those of its own.

        It does so in the order of the plan, so that every run and every engine rounds alike.
        """
        partial, home = step.source, step.into
        arrays, types = self.places.arrays, self.places.program.buffers[partial].types
        room = self.places.room(home)
        exchange, shape = self._parts(number, step, own)
        combine = self._combine(step, own)
        finish = ending(number)

        def begin(memory: RankMemory) -> None:
            memory.make(home, room)
            stacks = [arrays.library.empty(shape, of) for of in types]
            memory.grow(sum([stack.nbytes for stack in stacks]))
            memory.parts[number] = stacks
            memory.started[number] = [
                exchange.start(arrays, array, stack)
                for array, stack in zip(memory.arrays(partial), stacks, strict=True)
            ]

        def end(memory: RankMemory) -> None:
            finish(memory)
            stacks = memory.parts.pop(number)
            combine(memory, stacks)
            memory.bytes_held -= sum([stack.nbytes for stack in stacks])

        return BoundStep(begin, end)

    def _parts(
        self, number: int, step: ReduceScatter, own: DeviceStep
    ) -> tuple[BlockExchange, tuple[int, ...]]:
        """How the partial results of others come, and the shape of the array that they come to.

        They lie there one behind another.
        """
        others = tuple(rank for rank in own.members if rank != self.places.rank)
        sides = tuple((0, high - low) for low, high in own.box) if volume(own.box) else ()
        parts: list[Box | None] = [
            ((k, k + 1), *sides) if volume(own.box) else None for k in range(len(others))
        ]
        whole: Box = ((0, len(others)), *sides)
        sends = {transfer.peer: transfer.box for transfer in own.exchange.sends}
        out = blocks_of([sends.get(rank) for rank in others], self.places.box(step.source))
        into = blocks_of(parts, whole)
        return BlockExchange(others, out, into, (), number, own.members), shape_of(whole)

    def _combine(
        self, step: ReduceScatter, own: DeviceStep
    ) -> Callable[[RankMemory, Sequence[Array]], None]:
        """What makes the rank's block of the result of its own part and those of others."""
        if not volume(own.box):
            return _combine_nothing
        graph, partial, home = self.places.program.graph, step.source, step.into
        kernel = self.places.library.kernel(graph, graph[step.vertex])
        here = within(own.box, self.places.box(partial))
        there = within(own.box, self.places.box(home))
        others = [rank for rank in own.members if rank != self.places.rank]
        order = [None if r == self.places.rank else others.index(r) for r in own.members]

        def combine(memory: RankMemory, stacks: Sequence[Array]) -> None:
            # What was sent is of no more use: the sum may be made in it.
            mine = tuple([array[here] for array in memory.arrays(partial)])
            states = [mine if k is None else tuple([s[k, ...] for s in stacks]) for k in order]
            for state in states[1:]:
                kernel.combine(states[0], state)
            kernel.finish(states[0], memory.array(home)[there])

        return combine


def _combine_nothing(memory: RankMemory, stacks: Sequence[Array]) -> None:
    """What there is to do for an empty block."""
    del memory, stacks

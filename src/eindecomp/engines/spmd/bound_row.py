"""A rank's row of a program as functions of its memory: everything that can be known is looked up.

Each step becomes a function that does all of it, or, for communication, one that begins it and one
that ends it. Groups of ranks are asked for in the order of the program, which is the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from operator import is_
from typing import TYPE_CHECKING, Any
from weakref import ref

from eindecomp.engines.spmd.exchange import (
    BlockExchange,
    BlockGather,
    MappedExchange,
    blocks_of,
    exchange_of,
    gather_of,
    mapped_blocks,
)
from eindecomp.engines.spmd.rank_memory import BoundStep, RowPlaces, ending, read_in_place
from eindecomp.graph.ops import Fill
from eindecomp.lang.scalar import used_scalars
from eindecomp.layout.boxes import meet, shape_of, shares, volume, within
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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eindecomp.engines.spmd.protocols import Group, RankArrays
    from eindecomp.engines.spmd.rank_memory import Do, RankMemory
    from eindecomp.kernels.library import TileKernel
    from eindecomp.layout.boxes import Box
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.row import DeviceRow, DeviceStep

    Array = Any
    Loader = Callable[[RankMemory, int, Box], None]
    Communication = BlockExchange | BlockGather | MappedExchange


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
                return self._all_gather(number, step)
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
        call = TileCall(self.places.library.kernel(graph, graph[step.vertex]), step.is_partial)
        reads = [
            None if read is None or box is None else self._read(read.buffer, box)
            for read, box in zip(step.reads, own.reads, strict=True)
        ]
        into, room = step.into, self.places.room(step.into)

        def compute(memory: RankMemory) -> None:
            operands = [None if read is None else read(memory) for read in reads]
            call(operands, memory.make(into, room), memory.values)

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
        source, into = step.source, step.into
        group, moved = self._group_of(step), own.exchange
        is_here = is_view(self.places.program, self.places.program.buffers[into], self.places.rank)
        if group is None and is_here and volume(own.box):
            # The rank has all that it wants; others may lack some of it.
            self.views.add(into)
            where = within(own.box, self.places.box(source))
            exchange = self._exchange(number, step, replace(own, exchange=replace(moved, kept=())))

            def begin(memory: RankMemory) -> None:
                memory.held[into] = (memory.array(source)[where],)
                self._start(memory, number, exchange, source, into)

            return BoundStep(begin, ending(number, 0) if moved.sends else None)
        exchange, room = self._exchange(number, step, own, group), self.places.room(into)

        def make_and_begin(memory: RankMemory) -> None:
            memory.make(into, room)
            self._start(memory, number, exchange, source, into)

        coming = moved.elements_in * self.places.program.buffers[into].item
        return BoundStep(make_and_begin, ending(number, coming))

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

    def _group_of(self, step: Move) -> Group | None:
        """The ranks among which a move is a collective; None if it is none."""
        match step.pattern:
            case Gathered(axes) | Exchanged(axes):
                return self.places.group(sum(1 << axis for axis in axes))
            case _:
                return None

    def _exchange(
        self, number: int, step: Move, own: DeviceStep, group: Group | None = None
    ) -> Communication:
        held, wanted = self.places.box(step.source), own.box
        if group is None:
            return exchange_of(None, own.exchange, held, wanted, number)
        source, mesh = self.places.program.buffers[step.source], self.places.program.mesh
        boxes = [source.box(mesh, rank) for rank in group.ranks]
        if isinstance(step.pattern, Gathered):
            shared = meet(held, wanted)
            mine = tuple(slice(0, 0) for _ in held) if shared is None else within(shared, held)
            return gather_of(group, mine, blocks_of([meet(box, wanted) for box in boxes], wanted))
        is_near = all(rank in self.neighbours for rank in group.ranks)
        if not is_near or step.source not in self.places.shared:
            return exchange_of(group, own.exchange, held, wanted, number)
        processes = [self.neighbours[rank] for rank in group.ranks]
        reads = mapped_blocks(boxes, wanted, group.ranks.index(self.places.rank), processes)
        kept = [(within(each.box, held), within(each.box, wanted)) for each in own.exchange.kept]
        return MappedExchange(group, reads, tuple(kept))

    def _all_gather(self, number: int, step: AllGather) -> BoundStep:
        buffer, box = step.buffer, self.places.box(step.buffer)
        group = self.places.group(step.axes)
        gather = gather_of(group, None, blocks_of(shares(box, len(group.ranks)), box))
        counts = dict(zip(group.ranks, gather.into.counts, strict=True))
        coming = sum(counts.values()) - counts[self.places.rank]

        def begin(memory: RankMemory) -> None:
            self._start(memory, number, gather, buffer, buffer)

        return BoundStep(begin, ending(number, coming * self.places.program.buffers[buffer].item))

    def _reduce(self, number: int, step: ReduceScatter, own: DeviceStep) -> BoundStep:
        """Members exchange blocks of their partial results; each combines those of its own.

        It does so in the order of the plan, so that every run and every engine rounds alike.
        """
        partial, home = step.source, step.into
        arrays, types = self.places.arrays, self.places.program.buffers[partial].types
        room, item = self.places.room(home), self.places.program.buffers[partial].item
        exchange, shape = self._parts(number, step, own)
        combine = self._combine(step, own)
        finish = ending(number, own.exchange.elements_in * item)

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
        group, box = self.places.group(step.axes), own.box
        others = [rank for rank in group.ranks if rank != self.places.rank]
        sides = tuple((0, high - low) for low, high in box) if volume(box) else ()
        places: list[Box | None] = [
            ((others.index(rank), others.index(rank) + 1), *sides)
            if rank in others and volume(box)
            else None
            for rank in group.ranks
        ]
        whole: Box = ((0, len(others)), *sides)
        sends = {transfer.peer: transfer.box for transfer in own.exchange.sends}
        out = blocks_of([sends.get(rank) for rank in group.ranks], self.places.box(step.source))
        exchange = BlockExchange(group, group.ranks, out, blocks_of(places, whole), (), number)
        return exchange, shape_of(whole)

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


class TileCall:
    """Computes a tile, or the state of its share of an aggregation.

    A rank computes the same tile in every run, mostly in the very arrays of the run before: a
    kernel then need not look at them again.
    """

    __slots__ = ("_arrays", "_is_partial", "_kernel", "_ready")

    def __init__(self, kernel: TileKernel, is_partial: bool) -> None:
        self._kernel, self._is_partial = kernel, is_partial
        self._arrays: list[Callable[[], Array | None]] = []
        self._ready: Callable[[], None] | None = None
        """What computes the tile in these arrays, which live no longer for it."""

    def __call__(
        self, operands: Sequence[Array | None], outputs: Sequence[Array], scalars: Sequence[object]
    ) -> None:
        """Compute it into the outputs."""
        arrays = (*operands, *outputs)
        if self._known(arrays):
            if self._ready is not None:
                self._ready()
                return
            self._ready = self._kernel.ready(operands, outputs, partial=self._is_partial)
        else:
            self._ready = None
            self._arrays = [_nothing if array is None else ref(array) for array in arrays]
        if self._is_partial:
            self._kernel.partial(operands, outputs, scalars)
        else:
            self._kernel.whole(operands, outputs[0], scalars)

    def _known(self, arrays: Sequence[Array | None]) -> bool:
        """Whether these are the arrays of the run before."""
        known = self._arrays
        return len(known) == len(arrays) and all(map(is_, [each() for each in known], arrays))


def _combine_nothing(memory: RankMemory, stacks: Sequence[Array]) -> None:
    """What there is to do for an empty block."""
    del memory, stacks


def _nothing() -> None:
    """An operand that is not read."""

"""A rank's row of a program as functions of its memory: everything that can be known is looked up.

Each step becomes a function that does all of it, or, for communication, one that begins it and one
that ends it. Groups of ranks are asked for in the order of the program, which is the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eindecomp.engines.spmd.direct import (
    DirectExchange,
    block_reads,
    is_worth_it,
)
from eindecomp.engines.spmd.exchange import (
    BlockExchange,
    BlockGather,
    blocks_of,
    exchange_of,
    gather_of,
)
from eindecomp.engines.spmd.rank_memory import Room
from eindecomp.engines.spmd.reductions import bind_reduction
from eindecomp.engines.spmd.row_places import BoundStep, RowPlaces, ending, read_in_place
from eindecomp.engines.spmd.tile_call import TileCall
from eindecomp.graph.ops import Fill
from eindecomp.lang.scalar import used_scalars
from eindecomp.layout.boxes import meet, shape_of, shares, volume, within
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
    Role,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eindecomp.engines.spmd.rank_arrays import RankArrays
    from eindecomp.engines.spmd.rank_memory import RankMemory
    from eindecomp.engines.spmd.transport import Group, Transport
    from eindecomp.layout.boxes import Box
    from eindecomp.tra.program.device_row import DeviceRow, DeviceStep
    from eindecomp.tra.program.program import Program

    Array = Any
    Do = Callable[[RankMemory], None]
    Loader = Callable[[RankMemory, int, Box], None]
    Communication = BlockExchange | BlockGather | DirectExchange


def bind_row(
    program: Program,
    row: DeviceRow,
    transport: Transport,
    arrays: RankArrays,
    load: Loader,
    *,
    deterministic: bool = True,
) -> list[BoundStep]:
    """The functions of all steps; `load` takes a block of an input. All ranks bind together."""
    neighbours = arrays.neighbours()
    shared = read_in_place(program) if len(neighbours) > 1 else frozenset[int]()
    places = RowPlaces(program, row.device, transport, arrays, shared)
    binder = _Binder(places, load, neighbours, deterministic)
    return [binder.bind(number, own) for number, own in enumerate(row.steps)]


@dataclass(slots=True)
class _Binder:
    places: RowPlaces
    load: Loader
    neighbours: Mapping[int, int]
    """The processes of the ranks whose memory can be read."""
    deterministic: bool
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
                return bind_reduction(self.places, number, step, own, self.deterministic)
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
            library.fill(op, room.kept[0], box, {}, {})
            return lambda memory: _hold(memory, into, room)

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
        if group is None or not isinstance(step.pattern, Gathered):
            direct = None if group is None else self._direct(step, own, group)
            return direct or exchange_of(group, own.exchange, held, wanted, number)
        shared = meet(held, wanted)
        mine = tuple(slice(0, 0) for _ in held) if shared is None else within(shared, held)
        source, mesh = self.places.program.buffers[step.source], self.places.program.mesh
        boxes = [meet(source.box(mesh, rank), wanted) for rank in group.ranks]
        return gather_of(group, mine, blocks_of(boxes, wanted))

    def _direct(self, step: Move, own: DeviceStep, group: Group) -> DirectExchange | None:
        """An all-to-all by reading out of the memory of ranks on this machine, if that is faster.

        All members find the same answer.
        """
        processes = [self.neighbours.get(rank) for rank in group.ranks]
        source, into = (self.places.program.buffers[k] for k in (step.source, step.into))
        held = [source.box(self.places.program.mesh, rank) for rank in group.ranks]
        wanted = [into.box(self.places.program.mesh, rank) for rank in group.ranks]
        reachable = [process for process in processes if process is not None]
        shared = step.source in self.places.shared
        if len(reachable) < len(processes) or not is_worth_it(
            held, wanted, into.item, shared=shared
        ):
            return None
        place = group.ranks.index(self.places.rank)
        reads = block_reads(held, own.box, place, reachable, into.item)
        kept = [
            (within(each.box, held[place]), within(each.box, own.box)) for each in own.exchange.kept
        ]
        return DirectExchange(group, reads, tuple(kept))

    def _all_gather(self, number: int, step: AllGather) -> BoundStep:
        buffer, box = step.buffer, self.places.box(step.buffer)
        group = self.places.group(step.axes)
        gather = gather_of(group, None, blocks_of(shares(box, len(group.ranks)), box))
        counts = dict(zip(group.ranks, gather.into.counts, strict=True))
        coming = sum(counts.values()) - counts[self.places.rank]

        def begin(memory: RankMemory) -> None:
            self._start(memory, number, gather, buffer, buffer)

        return BoundStep(begin, ending(number, coming * self.places.program.buffers[buffer].item))


def _hold(memory: RankMemory, buffer: int, room: Room) -> None:
    """Hold what was filled once and for all."""
    memory.make(buffer, room)

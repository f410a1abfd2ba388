"""A rank's row of a program as functions of its memory: everything that can be known is looked up.

Each step becomes a function that does all of it, or, for communication, one that begins it and one
that ends it. Groups of ranks are asked for in the order of the program, which is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple

from eindecomp.engines.resources import LARGE
from eindecomp.engines.spmd.exchange import (
    BlockExchange,
    RankArrays,
    Started,
    blocks_of,
    exchange_of,
)
from eindecomp.engines.spmd.halos import Surrounded, surrounded
from eindecomp.engines.spmd.row_exchange import RowExchange
from eindecomp.engines.tensor import Tensor
from eindecomp.graph.ops import Fill
from eindecomp.graph.shown import see, shown_to
from eindecomp.lang.dtypes import DType
from eindecomp.layout.boxes import Box, shape_of, volume, within
from eindecomp.layout.tiling import Tiling, box_on
from eindecomp.tra.program import steps
from eindecomp.tra.program.device_row import DeviceRow, DeviceStep
from eindecomp.tra.program.memory import is_view, working_bytes
from eindecomp.tra.program.program import Program

Array = Any
Arrays = tuple[Array, ...]
Loader = Callable[["RankMemory", int], None]


class Room(NamedTuple):
    """The arrays that a buffer needs, and what makes them."""

    shapes: tuple[tuple[tuple[int, ...], DType], ...]
    nbytes: int
    make: Callable[[tuple[int, ...], DType], Array]
    """Makes one of them, with anything in it."""


@dataclass(slots=True)
class RankMemory:
    """What a rank holds of each buffer during a run, and what it has under way."""

    kind: RankArrays
    """What arrays there are, and where they come from."""
    inputs: Mapping[str, Any]
    scalars: Mapping[str, Any]
    held: list[Arrays]
    """By buffer, its arrays; none before it is made and after it is freed."""
    received: list[int]
    """By step, how many bytes have come."""
    values: Sequence[object] = ()
    """The values of run-time scalars, in the graph's order."""
    donated: Collection[str] = ()
    """The inputs whose tensors nobody reads again."""
    started: dict[int, Sequence[Started]] = field(default_factory=dict[int, Sequence[Started]])
    """By step, what is to be waited for."""
    parts: dict[int, Sequence[Array]] = field(default_factory=dict[int, "Sequence[Array]"])
    """By step, the arrays that receive the partial results of other ranks."""
    around: dict[int, tuple[Array, set[int]]] = field(default_factory=dict[int, Any])
    """By buffer that is computed inside of an array, that array and the buffers in it."""
    bytes_held: int = 0
    peak: int = 0

    def make(self, buffer: int, room: Room) -> Arrays:
        """Arrays for a buffer, with anything in them."""
        make = room.make
        self.held[buffer] = made = tuple([make(shape, dtype) for shape, dtype in room.shapes])
        self.grow(room.nbytes)
        return made

    def grow(self, count: int) -> None:
        """Note that `count` more bytes are held."""
        self.bytes_held += count
        if self.bytes_held > self.peak:
            self.peak = self.bytes_held

    def drop(self, buffer: int, owned: int) -> None:
        """Let go of a buffer."""
        arrays, self.held[buffer] = self.held[buffer], ()
        self.bytes_held -= owned
        if owned >= LARGE:
            for array in arrays:
                self.kind.give(array)

    def make_inside(self, buffer: int, own: Surrounded, room: Room) -> Arrays:
        """An array for a block of a buffer, inside of one for what surrounds it."""
        [(shape, dtype)] = room.shapes
        array = room.make(shape, dtype)
        self.around[buffer] = array, {*own.blocks}
        self.grow(room.nbytes)
        self.held[buffer] = made = (array[within(own.blocks[buffer], own.box)],)
        return made

    def leave(self, inner: int, buffer: int, nbytes: int) -> None:
        """Let go of a buffer inside of an array, and of that with the last one."""
        array, left = self.around[inner]
        self.held[buffer] = ()
        left.remove(buffer)
        if not left:
            del self.around[inner]
            self.bytes_held -= nbytes
            if nbytes >= LARGE:
                self.kind.give(array)

    def give_up(self, buffer: int, name: str, tiling: Tiling) -> None:
        """Let go of a block of an input, and of its memory if it was made here or donated."""
        given, array = self.inputs[name], self.array(buffer)
        self.held[buffer] = ()
        if isinstance(given, Tensor):
            if name not in self.donated:
                return
            # Another tensor may have the same block, which then lives on with that.
            given.data = {of: block for of, block in given.held().items() if of != tiling}
        self.bytes_held -= array.nbytes

    def array(self, buffer: int) -> Array:
        """What is held of a tensor."""
        return self.held[buffer][0]


Do = Callable[[RankMemory], None]


@dataclass(frozen=True, slots=True)
class BoundStep:
    """What a rank does in a step: `begin`, and for communication what ends it."""

    begin: Do
    end: Do | None = None


def bind_row(program: Program, row: DeviceRow, arrays: RankArrays, load: Loader) -> list[BoundStep]:
    """The functions of all steps; `load` takes a block of an input. All ranks bind together."""
    readers = (step for step in program.steps if isinstance(step, steps.Compute | steps.Move))
    read = frozenset(number for step in readers for number in steps.used_by(step)[:-1])
    around = surrounded(program, row)
    binder = _Binder(program, row.device, arrays, load, read, around)
    return [binder.bind(number, own) for number, own in enumerate(row.steps)]


def _ending(number: int) -> Do:
    """What waits for the communication of a step, and counts the bytes that came by it."""

    def end(memory: RankMemory) -> None:
        for started in memory.started.pop(number):
            memory.received[number] += started.finish()

    return end


@dataclass(slots=True)
class _Binder:
    program: Program
    rank: int
    arrays: RankArrays
    load: Loader
    read: frozenset[int]
    """The buffers that are read as they are, not only combined."""
    around: Mapping[int, Surrounded]
    """What surrounds buffers that are computed inside of larger arrays."""
    views: set[int] = field(default_factory=set[int])
    """The buffers of which the rank has a view of another."""

    def bind(self, number: int, own: DeviceStep) -> BoundStep:
        """The functions of a step."""
        step = own.step
        match step:
            case steps.Load():
                load, into = self.load, step.into
                return BoundStep(lambda memory: load(memory, into))
            case steps.Generate():
                name = self.program.buffers[step.into].tensor
                return BoundStep(self._filling(step.into, name, own.box))
            case steps.Compute():
                return BoundStep(self._compute(step, own))
            case steps.Move():
                return self._move(number, step, own)
            case steps.ReduceScatter():
                return self._reduce(number, step, own)
            case steps.AllGather():
                return self._all_gather(number, step, own)
            case steps.Free():
                return BoundStep(self._free(step))

    def _box(self, buffer: int) -> Box:
        """The rank's block of a buffer."""
        return self.program.buffers[buffer].box(self.program.mesh, self.rank)

    def _room(self, buffer: int) -> Room:
        made, shape = self.program.buffers[buffer], shape_of(self._box(buffer))
        nbytes = made.nbytes(self.program.mesh, self.rank)
        # Of small arrays none are kept to be used again.
        make = self.arrays.make if nbytes >= LARGE else self.arrays.library.empty
        return Room(tuple((shape, dtype) for dtype in made.types), nbytes, make)

    def _room_around(self, buffer: int) -> Room:
        """Room for what surrounds a buffer."""
        of, shape = self.program.buffers[buffer], shape_of(self.around[buffer].box)
        nbytes = of.item * prod(shape)
        make = self.arrays.make if nbytes >= LARGE else self.arrays.library.empty
        return Room(((shape, of.types[0]),), nbytes, make)

    def _making(self, buffer: int) -> Do:
        """What makes room for a buffer."""
        room = self._room(buffer)

        def make(memory: RankMemory) -> None:
            memory.make(buffer, room)

        return make

    # What it does alone

    def _filling(self, into: int, name: str, box: Box) -> Do:
        """What makes room for a buffer, with a fill of this name in it."""
        graph, library, room = self.program.graph, self.arrays.library, self._room(into)
        op = graph[name].op
        assert isinstance(op, Fill)  # noqa: S101

        def generate(memory: RankMemory) -> None:
            [out] = memory.make(into, room)
            library.fill(op, out, box, memory.scalars, graph.scalars)

        return generate

    def _compute(self, step: steps.Compute, own: DeviceStep) -> Do:
        library, vertex = self.arrays.library, self.program.computed_by(step)
        kernel = library.kernel(self.program.graph, vertex)
        shown = shown_to(vertex, own.reads, own.box, own.numbers)
        reads = [self._read(*each) for each in zip(step.reads, own.reads, strict=True)]
        into, is_partial, around = step.into, step.is_partial, self.around.get(step.into)
        room = self._room(into) if around is None else self._room_around(into)

        def compute(memory: RankMemory) -> None:
            operands = [read(memory) for read in reads]
            operands = see(library, kernel, operands, shown)
            if around is None:
                made = memory.make(into, room)
            else:
                made = memory.make_inside(into, around, room)
            if is_partial:
                kernel.partial(operands, made, memory.values)
            else:
                kernel.whole(operands, made[0], memory.values)

        return compute

    def _read(self, read: steps.Read | None, box: Box | None) -> Callable[[RankMemory], Array]:
        """What gives a kernel its operand: a block of what the rank holds, or None."""
        if read is None or box is None:
            return lambda _: None
        buffer, held = read.buffer, self._box(read.buffer)
        if box == held:
            return lambda memory: memory.held[buffer][0]
        if not volume(box):
            of = self.program.buffers[buffer].types[0]
            nothing = self.arrays.library.empty(shape_of(box), of)
            return lambda _: nothing
        where = within(box, held)
        return lambda memory: memory.held[buffer][0][where]

    def _free(self, step: steps.Free) -> Do:
        number, buffer = step.buffer, self.program.buffers[step.buffer]
        name, tiling = buffer.tensor, buffer.tiling
        for inner, around in self.around.items():
            if number in around.blocks:
                nbytes = self._room_around(inner).nbytes
                return lambda memory: memory.leave(inner, number, nbytes)
        is_given = buffer.role is steps.Role.GIVEN
        if is_given and all(vertex.name != name for vertex in self.program.graph.outputs):
            return lambda memory: memory.give_up(number, name, tiling)
        is_own = not is_given and number not in self.views  # views belong to what they are of
        owned = buffer.nbytes(self.program.mesh, self.rank) if is_own else 0
        return lambda memory: memory.drop(number, owned)

    # What it does with others

    def _move(self, number: int, step: steps.Move, own: DeviceStep) -> BoundStep:
        if step.rows is not None:
            return self._move_rows(number, step, step.rows, own)
        source, into, moved = step.source, step.into, own.exchange
        held = self._box(source)
        is_here = is_view(self.program, self.program.buffers[into], self.rank)
        if is_here and volume(own.box):
            # The rank has all that it wants; others may lack some of it.
            self.views.add(into)
            where = within(own.box, held)
            exchange = exchange_of(replace(moved, kept=()), held, own.box, number)

            def begin(memory: RankMemory) -> None:
                memory.held[into] = (memory.array(source)[where],)
                self._start(memory, number, exchange, source, into)

            return BoundStep(begin, _ending(number) if moved.sends else None)
        around = self.around.get(source)
        if around is not None and into in around.blocks:
            exchange = exchange_of(replace(moved, kept=()), held, own.box, number)
            where = within(own.box, around.box)

            def begin_inside(memory: RankMemory) -> None:
                memory.held[into] = (memory.around[source][0][where],)
                self._start(memory, number, exchange, source, into)

            return BoundStep(begin_inside, _ending(number))
        exchange, make = exchange_of(moved, held, own.box, number), self._making(into)
        if own.is_identity:
            make = self._filling(into, step.identity, own.box)

        def make_and_begin(memory: RankMemory) -> None:
            make(memory)
            self._start(memory, number, exchange, source, into)

        return BoundStep(make_and_begin, _ending(number))

    def _rows(
        self, number: int, rows: steps.MovedRows, source: int, own: DeviceStep
    ) -> RowExchange:
        """What travels of a table of which an index names rows."""
        both = own.exchange.sends, own.exchange.receives
        gives, takes = ({each.peer: each.box for each in part} for part in both)
        at = box_on(self.program.mesh, rows.index.cut, self.rank)
        carrier, held = self.arrays.carrier, self._box(source)
        return RowExchange(carrier, number, rows.named, at, held, gives, takes)

    def _move_rows(
        self, number: int, step: steps.Move, rows: steps.MovedRows, own: DeviceStep
    ) -> BoundStep:
        source, into = step.source, step.into
        exchange, read = self._rows(number, rows, source, own), self._read_index(rows)
        kept = [each.box for each in own.exchange.kept]

        def move(memory: RankMemory) -> None:
            index, held, target = read(memory), memory.array(source), memory.array(into)
            memory.received[number] += exchange.look_up(index, held, target, own.box)
            for box in kept:
                exchange.keep(index, held, target, own.box, box)

        return BoundStep(self._making(into), move)

    def _read_index(self, rows: steps.MovedRows) -> Callable[[RankMemory], Array]:
        return self._read(rows.index, box_on(self.program.mesh, rows.index.cut, self.rank))

    def _start(
        self, memory: RankMemory, number: int, exchange: BlockExchange, source: int, into: int
    ) -> None:
        arrays = memory.array(source), memory.array(into)
        memory.started[number] = [exchange.start(self.arrays, *arrays)]

    def _all_gather(self, number: int, step: steps.AllGather, own: DeviceStep) -> BoundStep:
        buffer, box = step.buffer, self._box(step.buffer)
        # The rank's own share is in its place.
        exchange = exchange_of(replace(own.exchange, kept=()), box, box, number)

        def begin(memory: RankMemory) -> None:
            self._start(memory, number, exchange, buffer, buffer)

        return BoundStep(begin, _ending(number))

    def _reduce(self, number: int, step: steps.ReduceScatter, own: DeviceStep) -> BoundStep:
        """Members exchange blocks of their partial results; each combines those of its own.

        It does so in the order of the plan, so that every run and every engine rounds alike.
        """
        if step.rows is not None:
            return self._reduce_rows(number, step, step.rows, own)
        source, home, arrays = step.source, step.into, self.arrays
        types, room = self.program.buffers[source].types, self._room(home)
        exchange, shape = self._parts(number, step, own)
        combine, finish = self._combine(step, own), _ending(number)

        def begin(memory: RankMemory) -> None:
            memory.make(home, room)
            stacks = [arrays.library.empty(shape, of) for of in types]
            memory.grow(sum([stack.nbytes for stack in stacks]))
            memory.parts[number] = stacks
            pairs = zip(memory.held[source], stacks, strict=True)
            memory.started[number] = [exchange.start(arrays, *pair) for pair in pairs]

        def end(memory: RankMemory) -> None:
            finish(memory)
            stacks = memory.parts.pop(number)
            combine(memory, stacks)
            memory.bytes_held -= sum([stack.nbytes for stack in stacks])

        return BoundStep(begin, end)

    def _reduce_rows(
        self, number: int, step: steps.ReduceScatter, rows: steps.MovedRows, own: DeviceStep
    ) -> BoundStep:
        """Members exchange rows of which they have partial sums; of all others those are 0."""
        source, home = step.source, step.into
        [of] = self.program.buffers[source].types
        exchange, read = self._rows(number, rows, source, own), self._read_index(rows)
        _, shape = self._parts(number, step, own)
        combine = self._combine(step, own)

        def reduce(memory: RankMemory) -> None:
            parts = self.arrays.library.empty(shape, of)
            parts[...] = 0
            memory.grow(parts.nbytes)
            memory.received[number] += exchange.reduce(read(memory), memory.array(source), parts)
            combine(memory, [parts])
            memory.bytes_held -= parts.nbytes

        return BoundStep(self._making(home), reduce)

    def _parts(
        self, number: int, step: steps.ReduceScatter, own: DeviceStep
    ) -> tuple[BlockExchange, tuple[int, ...]]:
        """How the partial results of others come, and the shape of the array that they come to.

        They lie there one behind another.
        """
        others = [rank for rank in own.members if rank != self.rank]
        sides = tuple((0, high - low) for low, high in own.box) if volume(own.box) else ()
        whole: Box = ((0, len(others)), *sides)
        parts: dict[int, Box] = {rank: ((k, k + 1), *sides) for k, rank in enumerate(others)}
        sends = {transfer.peer: transfer.box for transfer in own.exchange.sends}
        out = blocks_of(sends, self._box(step.source))
        into = blocks_of(parts if volume(own.box) else {}, whole)
        return BlockExchange(out, into, (), number), shape_of(whole)

    def _combine(
        self, step: steps.ReduceScatter, own: DeviceStep
    ) -> Callable[[RankMemory, Sequence[Array]], None]:
        """What makes the rank's block of the result of its own part and those of others."""
        if not volume(own.box):
            return lambda _memory, _stacks: None
        source, home = step.source, step.into
        kernel = self.arrays.library.kernel(self.program.graph, self.program.computed_by(step))
        here, there = (within(own.box, self._box(number)) for number in (source, home))
        others = [rank for rank in own.members if rank != self.rank]
        order = [None if r == self.rank else others.index(r) for r in own.members]
        empty = self.arrays.library.empty
        is_wide = self.program.buffers[source].types == kernel.state
        working = 0 if is_wide else working_bytes(self.program, step, self.rank)
        is_taken = source in self.read and order[0] is None and is_wide
        copied = self._copied if is_taken else None

        def wide(part: Sequence[Array]) -> Sequence[Array]:
            """A part, in the type in which parts accumulate."""
            if is_wide:
                return part
            state = tuple(empty(part[0].shape, of) for of in kernel.state)
            kernel.partial(part, state)
            return state

        def combine(memory: RankMemory, stacks: Sequence[Array]) -> None:
            # The sum is made in the first part. What was sent is of no more use, unless it is read.
            mine = tuple([array[here] for array in memory.held[source]])
            mine = mine if copied is None else tuple(map(copied, mine))
            states = [mine if k is None else tuple([s[k, ...] for s in stacks]) for k in order]
            memory.grow(working)
            total = wide(states[0])
            for state in states[1:]:
                kernel.combine(total, wide(state))
            kernel.finish(total, memory.array(home)[there])
            memory.bytes_held -= working

        return combine

    def _copied(self, array: Array) -> Array:
        copy = self.arrays.flat(prod(array.shape), array).reshape(array.shape)
        self.arrays.library.copy(copy, array)
        return copy

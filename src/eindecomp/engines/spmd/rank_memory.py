"""The arrays of one rank during a run, and where its row of a program has its blocks.

Arrays are made when they are written, and kept for the next run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

from eindecomp.engines.spare import LARGE
from eindecomp.engines.tensor import Tensor
from eindecomp.layout.boxes import shape_of
from eindecomp.tra.program.steps import Exchanged, Move, Role

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eindecomp.engines.spmd.protocols import ArraySource, RankArrays
    from eindecomp.kernels.library import KernelLibrary
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.boxes import Box
    from eindecomp.layout.tiling import Tiling
    from eindecomp.tra.program.program import Program

    Array = Any
    Arrays = tuple[Array, ...]

SMALL, _LITTLE = 1 << 16, 1 << 24
"""Bytes of a buffer that is kept from run to run, and of all that are."""


class Finishing(Protocol):
    """Communication that was started."""

    def finish(self) -> int:
        """Wait for it, and put what came in place; the bytes that came."""
        ...


@dataclass(slots=True)
class Room:
    """What arrays a buffer has."""

    shapes: tuple[tuple[tuple[int, ...], DType], ...]
    nbytes: int
    is_shared: bool = False
    """Whether other ranks read them where they are."""
    kept: Arrays | None = None
    """The same ones in every run, if they are small."""


@dataclass(slots=True)
class RankMemory:
    """What a rank holds of each buffer, and what it has under way."""

    inputs: Mapping[str, Any]
    scalars: Mapping[str, Any]
    held: list[Arrays | None]
    sources: tuple[ArraySource, ArraySource]
    """Where arrays come from, and those that other ranks read where they are."""
    donated: Collection[str] = ()
    """The inputs whose tensors nobody reads again."""
    values: Sequence[object] = ()
    """The values of run-time scalars, in the graph's order."""
    started: dict[int, Sequence[Finishing]] = field(
        default_factory=dict[int, "Sequence[Finishing]"]
    )
    """By step, what is to be waited for."""
    parts: dict[int, Sequence[Array]] = field(default_factory=dict[int, "Sequence[Array]"])
    """By step, where partial results of others come to."""
    received: list[int] = field(default_factory=list[int])
    """By step, how many bytes have come."""
    bytes_held: int = 0
    peak: int = 0

    def make(self, buffer: int, room: Room) -> Arrays:
        """Arrays for a buffer, with anything in them."""
        made = room.kept
        if made is None:
            source = self.sources[room.is_shared]
            made = tuple([source.make(shape, dtype) for shape, dtype in room.shapes])
        self.held[buffer] = made
        self.grow(room.nbytes)
        return made

    def grow(self, count: int) -> None:
        """Note that so many bytes more are held."""
        self.bytes_held += count
        self.peak = max(self.peak, self.bytes_held)

    def drop(self, buffer: int, owned: int) -> None:
        """Let go of a buffer."""
        arrays = self.held[buffer]
        self.held[buffer] = None
        self.bytes_held -= owned
        if owned >= LARGE and arrays is not None:
            for array, source in product(arrays, self.sources):
                source.give(array)  # each knows its own

    def give_up(self, buffer: int, name: str, tiling: Tiling) -> None:
        """Let go of a block of an input, and of its memory if it was made here or donated."""
        given, array = self.inputs[name], self.array(buffer)
        self.held[buffer] = None
        if isinstance(given, Tensor):
            if name not in self.donated:
                return
            # Another tensor may have the same block, which then lives on with that.
            given.data = {of: block for of, block in given.held().items() if of != tiling}
        self.bytes_held -= array.nbytes

    def array(self, buffer: int) -> Array:
        """What is held of a tensor."""
        arrays = self.held[buffer]
        assert arrays is not None  # noqa: S101 - the program frees nothing that is read
        return arrays[0]

    def arrays(self, buffer: int) -> Arrays:
        """What is held of a buffer."""
        arrays = self.held[buffer]
        assert arrays is not None  # noqa: S101
        return arrays


Do = Callable[[RankMemory], None]


@dataclass(frozen=True, slots=True)
class BoundStep:
    """What a rank does in a step: `begin`, and for communication what ends it."""

    begin: Do
    end: Do | None = None


def ending(number: int) -> Do:
    """What waits for the communication of a step, and counts the bytes that came by it."""

    def end(memory: RankMemory) -> None:
        for started in memory.started.pop(number):
            memory.received[number] += started.finish()

    return end


@dataclass(slots=True)
class RowPlaces:
    """Where a rank has its blocks."""

    program: Program
    rank: int
    arrays: RankArrays
    shared: frozenset[int] = frozenset()
    """The buffers that other ranks read where they are."""
    left: int = _LITTLE
    """Bytes that may be kept from run to run still."""

    @property
    def library(self) -> KernelLibrary:
        """What computes tiles."""
        return self.arrays.library

    def box(self, buffer: int) -> Box:
        """The rank's block of a buffer."""
        return self.program.buffers[buffer].box(self.program.mesh, self.rank)

    def room(self, buffer: int) -> Room:
        """What arrays a buffer has; small ones are kept from run to run, unless they are given."""
        shape = shape_of(self.box(buffer))
        shapes = tuple((shape, dtype) for dtype in self.program.buffers[buffer].types)
        room = Room(shapes, sum(prod(shape) * dtype.itemsize for _, dtype in shapes))
        room.is_shared = buffer in self.shared
        is_ours = buffer not in self.program.outputs.values()
        if is_ours and not room.is_shared and room.nbytes <= min(SMALL, self.left):
            self.left -= room.nbytes
            room.kept = tuple(self.library.empty(shape, dtype) for shape, dtype in shapes)
        return room


def read_in_place(program: Program) -> frozenset[int]:
    """The buffers that ranks of one machine had better read where they are.

    That is what is sent all-to-all, unless it is given or little.
    """
    sources = {
        step.source
        for step in program.steps
        if isinstance(step, Move) and isinstance(step.pattern, Exchanged)
    }
    return frozenset(
        number
        for number in sources
        if (buffer := program.buffers[number]).role is not Role.GIVEN
        and buffer.item * buffer.tiling.elements(program.mesh) > SMALL * program.devices
    )

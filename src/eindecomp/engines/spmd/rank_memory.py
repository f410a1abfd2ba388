"""The arrays of one rank during a run: made when they are written, kept for the next run."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol

from eindecomp.engines.spare import LARGE
from eindecomp.engines.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eindecomp.engines.spmd.rank_arrays import ArraySource
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.tiling import Tiling

    Array = Any
    Arrays = tuple[Array, ...]


class Finishing(Protocol):
    """Communication that was started."""

    def finish(self) -> None:
        """Wait for it, and put what came in place."""
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

"""What ranks need to reach each other (`Transport`), and what their tiles are (`RankArrays`).

A transport moves flat arrays, never objects. Everything that is started is waited for by whoever
has its `Pending`. A kernel library makes, computes and copies arrays; what else a rank has to know
of them is here: how they lie, how they travel, and when a device has done with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from eindecomp.graph.vertex import Vertex
    from eindecomp.kernels.library import KernelLibrary
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.boxes import Box

    Counts = np.ndarray[Any, Any]

Array = Any
"""Of whatever kind is moved and computed."""

Span = tuple[int, int]
"""Where in a flat array elements begin, and how many they are."""


class PeerSpans(NamedTuple):
    """A flat array, and which part of it goes to each other rank or comes from it."""

    array: Array
    spans: Mapping[int, Span]

    def parts(self) -> list[tuple[int, Array]]:
        """The ranks, each with its part; those that have none of it are left out."""
        found = ((rank, start, count) for rank, (start, count) in self.spans.items())
        return [(rank, self.array[at : at + count]) for rank, at, count in found if count]


class Pending(Protocol):
    """Communication that was started."""

    def wait(self) -> None:
        """Return when it is done: what was sent may be changed, what was asked for is there."""
        ...


class Carrier(Protocol):
    """What moves arrays of one kind from rank to rank."""

    def exchange(
        self, sends: PeerSpans, receives: PeerSpans, tag: int, group: tuple[int, ...] = ()
    ) -> Pending:
        """Elements to other ranks and from them; nothing else is under way with this tag.

        If all ranks of a `group` exchange among each other in this step, that is it. All ranks
        begin their exchanges in the order of the program.
        """
        ...


class Transport(Carrier, Protocol):
    """This process among the ranks of its job, whose arrays in the host's memory it moves."""

    @property
    def name(self) -> str:
        """What it is called: `mpi` or `torch`."""
        ...

    @property
    def rank(self) -> int:
        """Which rank this process is."""
        ...

    @property
    def size(self) -> int:
        """How many ranks there are."""
        ...

    def gather_bytes(self, own: bytes) -> list[bytes]:
        """What every rank has to say, by rank."""
        ...

    def gather_counts(self, own: Counts) -> Counts:
        """The integers of every rank, as many of each: a row for each rank."""
        ...

    def post(self, state: bytes) -> None:
        """Tell the ranks that watch this one how it is; called by the watching thread only."""
        ...

    def heard(self) -> dict[int, bytes]:
        """What ranks have told since this was asked last; called by the watching thread only."""
        ...

    def lost(self) -> list[int]:
        """The ranks that are known to be gone."""
        ...

    def abort(self) -> None:
        """End the whole job at once, this process too."""
        ...


class ArraySource(Protocol):
    """Where arrays come from, and where those go that are of no more use."""

    def make(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """An array with anything in it."""
        ...

    def give(self, array: Array) -> None:
        """Take an array that nobody reads any more."""
        ...


class RankArrays(Protocol):
    """One kind of array, on one rank."""

    @property
    def kind(self) -> str:
        """What ranks have to agree on."""
        ...

    @property
    def library(self) -> KernelLibrary:
        """What computes them."""
        ...

    @property
    def carrier(self) -> Carrier:
        """What moves them from rank to rank."""
        ...

    def stored(self, given: Any, vertex: Vertex) -> Any:
        """What was given for an input, checked, and left where it is."""
        ...

    def block(self, given: Any, box: Box, *, copy: bool) -> Array:
        """A block of what was given, in one piece; without `copy` it may share its memory."""
        ...

    def taken(self, block: Array) -> Array:
        """A block of a tensor, which may have been made of arrays of another kind."""
        ...

    def is_in_one_piece(self, array: Array) -> bool:
        """Whether an array lies row by row, without gaps."""
        ...

    def flat(self, count: int, like: Array) -> Array:
        """A new flat array of another's type, with anything in it."""
        ...

    def sources(self) -> tuple[ArraySource, ArraySource]:
        """Where tiles come from, and where those that other ranks read where they are."""
        ...

    def neighbours(self) -> Mapping[int, int]:
        """The processes of the ranks that can read this rank's shared arrays where they are."""
        ...

    def settle(self) -> None:
        """Wait for the device to have done all that it was told to."""
        ...

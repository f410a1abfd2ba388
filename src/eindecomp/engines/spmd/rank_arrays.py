"""The arrays that a rank's tiles are: NumPy's in the memory of the host, or torch's on a device.

A kernel library makes, computes and copies them. What else a rank has to know is here: how they
lie, how they travel, and when a device has done with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from eindecomp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.engines.ranks import Ranks
    from eindecomp.engines.spmd.pace import Pace
    from eindecomp.engines.spmd.transport import Carrier, Transport
    from eindecomp.engines.spmd.watch import Watch
    from eindecomp.graph.vertex import Vertex
    from eindecomp.kernels.library import KernelLibrary
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.boxes import Box

    Array = Any
    """An array of the library's own kind."""


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

    @property
    def words_in(self) -> Mapping[int, int]:
        """As how many words an element of so many bytes travels."""
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

    def in_one_piece(self, array: Array) -> Array:
        """An array that does so: itself, or a copy."""
        ...

    def words(self, array: Array) -> Array:
        """An array in one piece as a flat one of integers, with the same bits."""
        ...

    def flat(self, count: int, like: Array) -> Array:
        """A new flat array of another's type, with anything in it."""
        ...

    def sources(self) -> tuple[ArraySource, ArraySource]:
        """Where tiles come from, and where those that other ranks read where they are."""
        ...

    def neighbours(self) -> Mapping[int, int]:
        """The processes of the ranks that can read this rank's arrays where they are."""
        ...

    def settle(self) -> None:
        """Wait for the device to have done all that it was told to."""
        ...

    def pace(self, watch: Watch) -> Pace | None:
        """What tells the watch how far the device has come; None if it does all at once."""
        ...


def arrays_on(device: object, transport: Transport, ranks: Ranks) -> RankArrays:
    """The arrays of a rank on a device of torch's; without one, NumPy's. All ranks ask together."""
    if transport.name == "torch":
        with_device = ranks.gather_bytes(b"no" if device is None else b"yes")
        if len({*with_device}) > 1:
            some = ", ".join(str(rank) for rank, told in enumerate(with_device) if told == b"yes")
            raise InputError(f"device: it was given on rank {some}, but not on all ranks")
    elif device is not None:
        raise InputError(
            f"device={device!r} makes tiles torch's tensors, which travel by torch.distributed: "
            "start the job with torchrun, also one of a single rank"
        )
    if device is None:
        from eindecomp.engines.spmd.host_arrays import HostArrays

        return HostArrays(transport)
    from eindecomp.engines.spmd.torch_arrays import torch_arrays

    return torch_arrays(device, transport, ranks)

"""What ranks need to reach each other, and finding out how this process was started.

A transport moves flat arrays, never objects. Everything that is started is waited for by whoever
has its `Pending`; collectives of one group are started in the same order by all its members.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from eindecomp.engines.spmd.watch import watch_of
from eindecomp.errors import InputError, needing_extras, not_installed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from eindecomp.lang.dtypes import DType

    Counts = np.ndarray[Any, Any]
    Array = Any
    """Of whatever kind it moves."""
    Part = tuple[int, Array]
    """Another rank, and a flat array that goes to it or comes from it."""

NAMES = ("mpi", "torch")


class Pending(Protocol):
    """Communication that was started."""

    def wait(self) -> None:
        """Return when it is done: what was sent may be changed, what was asked for is there."""
        ...


class Group(Protocol):
    """Ranks that take part in collectives, in the order of their numbers."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Its members, this rank among them."""
        ...

    def all_gather(self, own: Array | None, into: Array, counts: Sequence[int]) -> Pending:
        """Every member's elements one after another into a flat array: so many of each.

        Without `own`, this rank's elements are in their place there already.
        """
        ...

    def all_to_all(
        self,
        out: Array,
        out_spans: Sequence[Span],
        into: Array,
        into_spans: Sequence[Span],
    ) -> Pending:
        """To each member the span of `out` that is its own, from each into that of `into`."""
        ...

    def reduce_scatter(self, out: Array, into: Array, counts: Sequence[int]) -> Pending:
        """The sum of all members' arrays, added in any order: of each member its own part.

        Only where the transport `sums`.
        """
        ...


Span = tuple[int, int]
"""Where in a flat array elements begin, and how many they are."""


class Carrier(Protocol):
    """What moves arrays of one kind from rank to rank."""

    def group(self, groups: Sequence[tuple[int, ...]]) -> Group:
        """This rank's group of several that together are all ranks; every rank asks for it."""
        ...

    def exchange(self, sends: Sequence[Part], receives: Sequence[Part], tag: int) -> Pending:
        """Flat arrays from rank to rank."""
        ...

    def sums(self, dtype: DType, *, equal: bool) -> bool:
        """Whether groups add numbers of a type by themselves; `equal`: in parts of one size."""
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

    def share_bytes(self, own: bytes | None) -> bytes:
        """What rank 0 has to say."""
        ...

    def total(self, counts: Counts) -> Counts:
        """The sum over all ranks of integers."""
        ...

    def most(self, counts: Counts) -> Counts:
        """The largest of all ranks, element by element, of integers."""
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


def connect(name: str = "auto") -> Transport:
    """The transport of a name, or by which this job was started; it is made once."""
    if name == "auto":
        name = _started_by()
    if name not in NAMES:
        raise InputError(f"transport is auto, {' or '.join(NAMES)}, not {name!r}")
    if name not in _CONNECTED:
        _CONNECTED[name] = _connect(name)
        # From now on others hear of this rank, also while it plans before it runs anything.
        watch_of(_CONNECTED[name])
    return _CONNECTED[name]


_CONNECTED: dict[str, Transport] = {}


def _connect(name: str) -> Transport:
    if name == "mpi":
        if find_spec("mpi4py") is None:
            raise InputError(f"{not_installed('mpi4py')}, and an MPI such as Open MPI")
        from eindecomp.engines.spmd.mpi import MpiTransport

        return MpiTransport()
    with needing_extras():
        from eindecomp.engines.spmd.torch_ranks import TorchTransport

    return TorchTransport()


def _started_by() -> str:
    """Which launcher started this process, as far as its environment tells."""
    if {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        return "torch"
    by_mpi = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS")
    if any(name in os.environ for name in by_mpi) or find_spec("mpi4py") is not None:
        return "mpi"
    return "torch"

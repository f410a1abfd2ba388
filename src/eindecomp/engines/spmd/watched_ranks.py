"""The ranks of a job between two runs: who waits for another one is watched there, too."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from eindecomp.engines.ranks import writers
from eindecomp.engines.spmd.watch import watch_of

if TYPE_CHECKING:
    from collections.abc import Generator

    import numpy as np

    from eindecomp.engines.spmd.transport import Transport
    from eindecomp.engines.tensor import Tensor
    from eindecomp.tra.boxes import Box

    Array = np.ndarray[Any, Any]


class WatchedRanks:
    """What ranks do together outside of runs."""

    def __init__(self, transport: Transport, timeout: float) -> None:
        self._transport, self._timeout = transport, timeout

    @property
    def rank(self) -> int:
        """Which rank this process is."""
        return self._transport.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._transport.size

    def share_bytes(self, own: bytes | None) -> bytes:
        """What rank 0 has to say."""
        with self._marked("waits"):
            return self._transport.share_bytes(own)

    def gather_bytes(self, own: bytes) -> list[bytes]:
        """What every rank has to say, by rank."""
        with self._marked("waits"):
            return self._transport.gather_bytes(own)

    @contextmanager
    def writing(self) -> Generator[None]:
        """While this rank writes to a disk."""
        with self._marked("writes"):
            yield

    def own_block(self, tensor: Tensor) -> tuple[Box, Array] | None:
        """This rank's block, if it is the first rank that has it."""
        held: dict[Any, Array] = tensor.held()
        tiling = tensor.tilings[0]
        box = tiling.box(tensor.mesh, self.rank)
        if writers(tensor.mesh, tiling).get(box) != self.rank:
            return None
        return box, held[tiling]

    @contextmanager
    def _marked(self, state: str) -> Generator[None]:
        watch = watch_of(self._transport, self._timeout)
        setattr(watch, state, True)
        try:
            yield
        finally:
            setattr(watch, state, False)

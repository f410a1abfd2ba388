"""The ranks of a job between two runs: who waits for another one is watched there, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.engines.blocks import as_numpy
from eindecomp.engines.ranks import writers

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np

    from eindecomp.engines.spmd.transport import Transport
    from eindecomp.engines.spmd.watch import Watch
    from eindecomp.engines.tensor import Tensor
    from eindecomp.layout.boxes import Box

    Array = np.ndarray[Any, Any]


class WatchedRanks:
    """What ranks do together outside of runs."""

    def __init__(self, transport: Transport, watch: Watch) -> None:
        self._transport, self._watch = transport, watch

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
        with self._watch.waiting("what rank 0 shares with all"):
            return self._transport.share_bytes(own)

    def gather_bytes(self, own: bytes) -> list[bytes]:
        """What every rank has to say, by rank."""
        with self._watch.waiting("what all ranks have to say"):
            return self._transport.gather_bytes(own)

    def using_disk(self) -> AbstractContextManager[None]:
        """While this rank reads or writes files."""
        return self._watch.using_disk()

    def waiting_for_input(self) -> AbstractContextManager[None]:
        """While this rank waits for somebody to type, which takes as long as a disk may."""
        return self._watch.using_disk()

    def own_block(self, tensor: Tensor) -> tuple[Box, Array] | None:
        """This rank's block, if it is the first rank that has it."""
        held: dict[Any, Any] = tensor.held()
        tiling = tensor.tilings[0]
        box = tiling.box(tensor.mesh, self.rank)
        if writers(tensor.mesh, tiling).get(box) != self.rank:
            return None
        return box, as_numpy(held[tiling])

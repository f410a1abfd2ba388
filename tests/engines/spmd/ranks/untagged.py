"""Every rank: the laws, with tensors carried as NCCL carries them, but by groups of gloo.

Messages have no tags: what two ranks send each other is matched by the order in which they begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import laws
import torch
from torch import distributed

from eindecomp.engines.spmd import torch_arrays
from eindecomp.engines.spmd.job import connect
from eindecomp.engines.spmd.torch_arrays import NcclCarrier
from eindecomp.engines.spmd.torch_transport import TorchGroup, Works, as_bytes, own_group


class Untagged(NcclCarrier):
    """NCCL's carrier on CPUs; gloo's own all-to-all takes parts of one size only."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self._groups = {}
        self._everybody = self.group((tuple(range(size)),)).group

    def group(self, groups: Sequence[tuple[int, ...]]) -> TorchGroup:
        key = tuple(groups)
        if key not in self._groups:
            self._groups[key] = TorchGroup(self, *own_group(groups, self.rank, "gloo"))
        return self._groups[key]

    def all_to_all(
        self, group: TorchGroup, out: Sequence[torch.Tensor], into: Sequence[torch.Tensor]
    ) -> Works:
        begun = [
            distributed.P2POp(what, as_bytes(array), peer, group.group)
            for what, arrays in ((distributed.irecv, into), (distributed.isend, out))
            for peer, array in zip(group.ranks, arrays, strict=True)
            if len(array)
        ]
        return Works(distributed.batch_isend_irecv(begun) if begun else [])


def main() -> None:
    transport = connect()
    carrier = Untagged(transport.rank, transport.size)
    make = torch_arrays.TorchArrays

    def carried(device: torch.device, _: Any) -> torch_arrays.TorchArrays:
        return make(device, carrier)

    torch_arrays.TorchArrays = carried
    laws.main()


if __name__ == "__main__":
    main()

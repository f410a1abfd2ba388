"""Every rank: the laws, with tensors carried as NCCL carries them, but by gloo.

Messages have no tags: what two ranks send each other is matched by the order in which they begin.
"""

from __future__ import annotations

from typing import Any

import laws
import torch
from torch import distributed

from eindecomp.engines.spmd import torch_ranks
from eindecomp.engines.spmd.job import connect


class Untagged(torch_ranks.NcclCarrier):
    """NCCL's carrier on CPUs."""

    def __init__(self) -> None:
        self._everybody = distributed.new_group(backend="gloo")


def main() -> None:
    connect()
    carrier = Untagged()
    make = torch_ranks.TorchArrays

    def carried(device: torch.device, _: Any) -> torch_ranks.TorchArrays:
        return make(device, carrier)

    torch_ranks.TorchArrays = carried
    laws.main()


if __name__ == "__main__":
    main()

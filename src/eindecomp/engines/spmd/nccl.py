"""Tensors on GPUs from rank to rank, by groups of NCCL that carry nothing else.

NCCL knows no tags: what two ranks send each other is matched by the order in which both begin with
it, which is that of the program. What a rank sends and receives in a step is begun as one, so that
no rank waits for another to begin.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from eindecomp.engines.spmd.torch_groups import TorchGroup, Works, as_bytes, dist, own_group
from eindecomp.errors import InputError
from eindecomp.lang.dtypes import BFLOAT16

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.engines.spmd.transport import Part
    from eindecomp.lang.dtypes import DType

_SUMMED = frozenset({BFLOAT16, *map(np.dtype, ("float16", "float32", "float64"))})
_LONGEST = timedelta(days=1)
"""How long NCCL waits: it is for the watch to end a job that cannot go on."""


class NcclCarrier:
    """All ranks of a job, each with a GPU of its own; they make it together."""

    gathers_in_place = True

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        if not dist.is_nccl_available():
            raise InputError("this torch was built without NCCL, which moves tensors between GPUs")
        # Groups then run in the order in which ranks begin with them, which is the same for all.
        os.environ.setdefault("NCCL_LAUNCH_ORDER_IMPLICIT", "1")
        torch.cuda.set_device(device)
        self.rank, self._device = rank, device
        self._groups: dict[tuple[tuple[int, ...], ...], TorchGroup] = {}
        self._everybody = self.group((tuple(range(size)),)).group

    def group(self, groups: Sequence[tuple[int, ...]]) -> TorchGroup:
        """This rank's group; all are made by all, in one order, and only once."""
        key = tuple(groups)
        if key not in self._groups:
            made, ranks = own_group(groups, self.rank, "nccl", _LONGEST)
            # It connects its members when they first use it, all of them.
            dist.all_reduce(torch.zeros(1, device=self._device), group=made)
            torch.cuda.synchronize(self._device)
            self._groups[key] = TorchGroup(self, made, ranks)
        return self._groups[key]

    def exchange(self, sends: Sequence[Part], receives: Sequence[Part], tag: int) -> Works:
        """Flat tensors from rank to rank, begun as one."""
        del tag
        operations = [(dist.irecv, *part) for part in receives]
        operations += [(dist.isend, *part) for part in sends]
        begun: list[Any] = [
            dist.P2POp(what, as_bytes(array), peer, self._everybody)
            for what, peer, array in operations
            if len(array)
        ]
        arrays = [array for _, _, array in operations]
        return Works(dist.batch_isend_irecv(begun) if begun else [], arrays)

    def all_to_all(
        self, group: TorchGroup, out: Sequence[torch.Tensor], into: Sequence[torch.Tensor]
    ) -> Works:
        """A flat tensor to each member of a group and one from each."""
        arrays = [as_bytes(each) for each in into], [as_bytes(each) for each in out]
        return Works([dist.all_to_all(*arrays, group.group, True)], arrays)

    def sums(self, dtype: DType, *, equal: bool) -> bool:
        """Whether groups add numbers of a type by themselves: only in parts of one size."""
        return equal and dtype in _SUMMED


def check_own_gpus(gpus: Sequence[bytes]) -> None:
    """Refuse two ranks on one GPU; `gpus` names that of each."""
    first: dict[bytes, int] = {}
    for rank, gpu in enumerate(gpus):
        other = first.setdefault(gpu, rank)
        if other != rank:
            raise InputError(
                f"ranks {other} and {rank} are on one GPU ({gpu.decode()}): NCCL wants one GPU a "
                "rank; device='cuda' gives each its own"
            )

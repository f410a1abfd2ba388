"""Records the collectives that PyTorch issues, and the bytes that all devices receive in them."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch._C._distributed_c10d import (
    _resolve_process_group,  # pyright: ignore[reportPrivateUsage] - the only way from name to group
)
from torch.distributed import get_world_size
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from eindecomp.errors import RunError
from eindecomp.planner.comparison import Verified, in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_KINDS = {
    "all_gather_into_tensor": "all-gather",
    "all_gather_into_tensor_coalesced": "all-gather",
    "reduce_scatter_tensor": "reduce-scatter",
    "reduce_scatter_tensor_coalesced": "reduce-scatter",
    "all_reduce": "all-reduce",
    "all_reduce_": "all-reduce",
    "all_reduce_coalesced": "all-reduce",
    "all_to_all_single": "all-to-all",
    "shard_dim_alltoall": "all-to-all",
    "broadcast": "broadcast",
    "broadcast_": "broadcast",
}
"""What functional collectives are called."""
_SPACES = ("c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")
_STILL = ("wait_tensor", "_wrap_tensor_autograd", "mesh_get_process_group", "barrier")
"""Operators of the same families that move nothing."""


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective that all devices take part in, in groups of `devices`."""

    kind: str
    devices: int
    nbytes: int
    """What all devices of all groups receive together."""
    is_fallback: bool = False
    """Whether DTensor gathers where it would exchange parts with a library that can."""

    def __str__(self) -> str:
        return f"{self.kind} of {self.devices}"


def row_of(
    vertex: str, planned: int, collectives: Sequence[Collective], reasons: Iterable[str]
) -> Verified:
    """The collectives of a vertex beside what was planned, and why they differ."""
    counted = sum(each.nbytes for each in collectives)
    told = "; ".join(dict.fromkeys(each for each in reasons if each))
    return Verified(vertex, planned, counted, in_words(Counter(map(str, collectives))), told)


class Recorder(TorchDispatchMode):
    """While it is entered, writes down every functional collective of this process.

    All devices are taken to do what this one does, which DTensor ensures by padding uneven pieces.
    An all-reduce is counted as a reduce-scatter and an all-gather.
    """

    def __init__(self) -> None:
        super().__init__()
        self.collectives: list[Collective] = []

    def take(self) -> tuple[Collective, ...]:
        """What was recorded since this was last asked."""
        found = tuple(self.collectives)
        self.collectives.clear()
        return found

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if DTensor in types:
            return NotImplemented  # which does what it does to local tensors, seen here after
        space, name = func._schema.name.split("::")
        if space in _SPACES and name not in _STILL:
            self.collectives.append(_collective(space, name, args))
        return func(*args, **(kwargs or {}))


def _collective(space: str, name: str, args: Any) -> Collective:
    if space == "c10d" or name not in _KINDS:
        raise RunError(f"cannot count what the collective {space}::{name} moves")
    kind, devices = _KINDS[name], _group(args[-1]).size()
    nbytes = sum(each.nbytes for each in tree_leaves(args[0]))
    received = _received(kind, devices, nbytes, get_world_size())
    return Collective(kind, devices, received, kind == "all-gather" and _stands_for_exchange())


def _stands_for_exchange() -> bool:
    """Whether DTensor's exchange of shards issues this collective, which then is no all-to-all."""
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage] - what DTensor does shows nowhere else
    while frame is not None:
        if frame.f_code.co_name == "shard_dim_alltoall":
            return True
        frame = frame.f_back
    return False


def _group(given: Any) -> Any:
    """A process group, which may be given by its name."""
    return given if hasattr(given, "size") else _resolve_process_group(given)


def _received(kind: str, devices: int, nbytes: int, world: int) -> int:
    """The bytes that `world` devices receive, where each gives `nbytes` to a group of `devices`.

    >>> _received("all-gather", 4, 10, 8), _received("all-reduce", 2, 10, 2)
    (240, 20)
    """
    match kind:
        case "all-gather":
            return world * (devices - 1) * nbytes
        case "all-reduce":
            return 2 * world * (devices - 1) * nbytes // devices
        case _:  # each has its part already of what is spread over the group
            return world * (devices - 1) * nbytes // devices

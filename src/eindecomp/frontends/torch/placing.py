"""Placements of PyTorch, and tensors brought to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import (
    Placement,
    _StridedShard,  # pyright: ignore[reportPrivateUsage] - the only placement out of mesh order
)

from eindecomp.frontends.placements import Pending, Replicated, Sharded

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

    from eindecomp.frontends.placements import Placed, Places

Placements = tuple[Placement, ...]
"""One placement for each dimension of the device mesh."""


def torch_placement(own: Placed) -> Placement:
    """A placement as PyTorch has it."""
    match own:
        case Sharded(dim, 1):
            return Shard(dim)
        case Sharded(dim, factor):
            return _StridedShard(dim, split_factor=factor)
        case Replicated():
            return Replicate()
        case Pending(reduce_op):
            return Partial(reduce_op)


def torch_placements(places: Places, mesh: DeviceMesh | None = None) -> Placements:
    """Placements on a device mesh, which may have dimensions of size 1 besides."""
    found = [torch_placement(own) for own in places]
    if mesh is None:
        return tuple(found)
    rest = iter(found)
    return tuple(Replicate() if size == 1 else next(rest) for size in mesh.shape)


@dataclass
class Given:
    """An input or weight in each layout that it is read in; for a free one, that moves nothing."""

    value: torch.Tensor
    mesh: DeviceMesh
    home: Placements
    is_free: bool
    held: dict[Placements, DTensor] = field(default_factory=dict["Placements", DTensor])

    def at(self, wanted: Placements | None) -> DTensor:
        """The tensor where it is wanted; every device has all of it to take its part from."""
        places = self.home if wanted is None or not self.is_free else wanted
        if places not in self.held:
            taken = distribute_tensor(self.value, self.mesh, places, src_data_rank=None)
            self.held[places] = taken
        found = self.held[places]
        return found if wanted is None else moved(found, wanted)


def moved(tensor: torch.Tensor, places: Placements) -> DTensor:
    """A tensor brought to where it is wanted."""
    own = cast("DTensor", tensor)
    return own if own.placements == places else own.redistribute(placements=places)

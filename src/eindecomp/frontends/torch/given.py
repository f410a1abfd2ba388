"""Inputs and weights of a module, as DTensors in the layouts in which they are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from torch.distributed.tensor import DTensor, distribute_tensor

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

    from eindecomp.frontends.torch.dtensor import Placements


@dataclass
class Given:
    """An input or weight, in as many layouts as it is read in, which a free one has for nothing."""

    value: torch.Tensor
    mesh: DeviceMesh
    home: Placements
    is_free: bool
    held: dict[Placements, DTensor] = field(default_factory=dict["Placements", DTensor])

    def at(self, wanted: Placements | None) -> DTensor:
        """The tensor where it is wanted; every device has all of it to take its part from."""
        places = self.home if wanted is None or not self.is_free else wanted
        if places not in self.held:
            self.held[places] = _taken(self.value, self.mesh, places)
        found = self.held[places]
        return found if wanted is None else moved(found, wanted)


def _taken(value: torch.Tensor, mesh: DeviceMesh, places: Placements) -> DTensor:
    return distribute_tensor(value, mesh, places, src_data_rank=None)


def moved(tensor: torch.Tensor, places: Placements) -> DTensor:
    """A tensor brought to where it is wanted."""
    own = cast("DTensor", tensor)
    return own if own.placements == places else own.redistribute(placements=places)

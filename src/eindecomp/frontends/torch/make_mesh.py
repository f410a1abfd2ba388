"""The device mesh on which DTensor moves least under a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.distributed.device_mesh import DeviceMesh

from eindecomp.frontends.layouts import vertex_cuts
from eindecomp.layout.cut import used_axes

if TYPE_CHECKING:
    from eindecomp.frontends.coarse import Coarse
    from eindecomp.layout.cut import Axes
    from eindecomp.planner.plan import Plan


def make_mesh(plan: Plan, on: Coarse, device_type: str) -> DeviceMesh:
    """A device mesh of the process group's ranks, in order.

    Dimensions along which a sum is needed everywhere are flattened as well, without which DTensor
    would all-reduce along one after the other.
    """
    names = on.mesh.names or ("axis0",)
    ranks = torch.arange(plan.devices).reshape(on.mesh.sizes or (1,))
    mesh = DeviceMesh(device_type, ranks, mesh_dim_names=names)
    for axes in _summed_everywhere(plan, on):
        inner = mesh[tuple(names[axis] for axis in axes)]
        inner._flatten("_".join(names[axis] for axis in axes))  # pyright: ignore[reportPrivateUsage] - nothing else does
    return mesh


def _summed_everywhere(plan: Plan, on: Coarse) -> list[Axes]:
    """Sets of several axes along which partial results are reduced and then replicated."""
    found: dict[Axes, None] = {}
    for own in map(on.vertex, vertex_cuts(plan).values()):
        kept = used_axes(own.home)
        axes = tuple(sorted(axis for axis in own.summed if not kept >> axis & 1))
        if len(axes) > 1:
            found[axes] = None
    return list(found)

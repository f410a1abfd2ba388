"""`plan.to_dtensor()`: where the tensors of a plan lie, as placements of PyTorch's DTensor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from eindecomp.errors import PlanError
from eindecomp.frontends.input_names import check_given, qualified
from eindecomp.frontends.placements import Pending, PlacedPlan, placed_plan
from eindecomp.frontends.plan_cuts import coarsest, of_shape, vertex_cuts
from eindecomp.frontends.tensor_parallel import styles_of, tp_plan
from eindecomp.frontends.torch.applying import apply
from eindecomp.frontends.torch.placing import torch_placements
from eindecomp.frontends.torch.rehearse import Rehearsal
from eindecomp.layout.cut import used_axes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn
    from torch.distributed.tensor.parallel import ParallelStyle
    from torch.distributed.tensor.placement_types import Placement

    from eindecomp.frontends.placements import Places
    from eindecomp.frontends.plan_cuts import Coarse
    from eindecomp.frontends.tensor_parallel import Style
    from eindecomp.frontends.torch.applying import Applied
    from eindecomp.frontends.torch.placing import Placements
    from eindecomp.layout.cut import Axes
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.plan import Plan


@dataclass(frozen=True)
class DTensorPlan:
    """The placements of every tensor that a plan names, and what can be made of them."""

    placed: PlacedPlan
    device_mesh: DeviceMesh | None = None

    @property
    def plan(self) -> Plan:
        """The plan that this is the form of."""
        return self.placed.plan

    @property
    def mesh_dims(self) -> dict[str, int]:
        """The dimensions of the mesh that placements are for, without those of size 1."""
        return _dims(self.placed.mesh)

    @property
    def fewest_dims(self) -> dict[str, int]:
        """Those of the device mesh on which DTensor moves least, where inseparable axes are one.

        `init_device_mesh` takes them as its shape and its names.
        """
        return _dims(coarsest(self.plan).mesh)

    def make_mesh(self, device_type: str) -> DeviceMesh:
        """Make the device mesh of `fewest_dims` from the ranks of the process group, in order."""
        ranks = dist.get_world_size() if dist.is_initialized() else 0
        if ranks != self.plan.devices:
            raise PlanError(
                f"the plan is for {self.plan.devices} devices, the process group has {ranks} ranks"
            )
        return make_mesh(self.plan, coarsest(self.plan), device_type)

    @cached_property
    def placements(self) -> dict[str, Placements]:
        """Where inputs lie, or are wanted, and where results are left."""
        return {name: found[0] for name, found in self.layouts.items()}

    @cached_property
    def layouts(self) -> dict[str, tuple[Placements, ...]]:
        """The same with the layouts that a tensor is copied to, if any, after that."""
        return {
            name: tuple(self.torch_placements(each) for each in found)
            for name, found in self.placed.layouts.items()
        }

    @cached_property
    def operands(self) -> dict[str, tuple[Placements | None, ...]]:
        """How each vertex wants its operands; None for one whose elements are never read."""
        return {
            name: tuple(None if own is None else self.torch_placements(own) for own in found)
            for name, found in self.placed.operands.items()
        }

    @cached_property
    def partials(self) -> dict[str, Placements]:
        """The partial results of vertices, before they are reduced to where the result lies.

        Those of aggregations that DTensor does not know are not there.
        """
        return {
            name: self.torch_placements(found)
            for name, found in self.placed.made.items()
            if any(isinstance(own, Pending) for own in found)
        }

    @cached_property
    def weights(self) -> dict[str, Placements]:
        """Where inputs lie by qualified name, as `distribute_tensor` takes them."""
        return {name: self.torch_placements(found) for name, found in self.placed.weights.items()}

    def torch_placements(self, places: Places) -> Placements:
        """Placements on the device mesh, which may have dimensions of size 1 besides."""
        return torch_placements(places, self.device_mesh)

    def distribute(self, tensors: Mapping[str, Tensor]) -> dict[str, DTensor]:
        """Distribute tensors, by their names in the graph or their qualified names."""
        if self.device_mesh is None:
            raise PlanError("to distribute tensors, say over which device_mesh: to_dtensor(mesh)")
        known = {qualified(each.name): each.name for each in self.plan.graph.inputs}
        known |= {name: name for name in self.placements}
        check_given(self.plan.graph, tensors, known)
        return {
            name: distribute_tensor(tensor, self.device_mesh, self.placements[known[name]])
            for name, tensor in tensors.items()
        }

    def apply(
        self,
        module: nn.Module,
        example_inputs: object = None,
        example_kwargs: Mapping[str, Any] | None = None,
    ) -> Applied:
        """The module that the plan's graph was imported from, to be called over the device mesh.

        The example is the one that it was imported with.
        """
        if self.device_mesh is None:
            raise PlanError("to apply a plan, say over which device_mesh: to_dtensor(mesh)")
        return apply(self.placed, self.device_mesh, module, example_inputs, example_kwargs)

    def tp_plan(
        self,
        module: nn.Module | None = None,
        example_inputs: object = (),
        example_kwargs: Mapping[str, Any] | None = None,
    ) -> dict[str, str]:
        """The plan as Hugging Face's `tp_plan`, if it is one.

        transformers keeps its own rules for modules that this does not name. With the module and
        the example that it was imported with, layers whose results the module's code cannot take
        in parts, such as one that counts heads itself, gather them.
        """
        return tp_plan(self.plan, self._rehearsal(module, example_inputs, example_kwargs))

    def parallelize_module_plan(
        self,
        module: nn.Module | None = None,
        example_inputs: object = (),
        example_kwargs: Mapping[str, Any] | None = None,
    ) -> dict[str, ParallelStyle]:
        """The plan as `parallelize_module` takes it, if it is one.

        Between layers all devices have everything, but for the features of a colwise layer that
        nobody needs whole before the rowwise one after it. The module is for what `tp_plan` says.
        """
        rehearsal = self._rehearsal(module, example_inputs, example_kwargs)
        return module_plan(styles_of(self.plan, rehearsal))

    def _rehearsal(
        self, module: nn.Module | None, example: object, kwargs: Mapping[str, Any] | None
    ) -> Rehearsal | None:
        return None if module is None else Rehearsal(self.plan, module, example, kwargs)


def to_dtensor(plan: Plan, device_mesh: DeviceMesh | None = None) -> DTensorPlan:
    """The placements of a plan, on a device mesh of its shape if one is given.

    Dimensions of size 1 may be added, and axes that the plan never keeps apart may be one.
    """
    if device_mesh is None:
        return DTensorPlan(placed_plan(plan))
    return DTensorPlan(placed_plan(plan, of_shape(plan, device_mesh.shape)), device_mesh)


def _dims(mesh: Mesh) -> dict[str, int]:
    return dict(zip(mesh.names, mesh.sizes, strict=True))


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


def module_plan(styles: Mapping[str, Style]) -> dict[str, ParallelStyle]:
    """The style of each module that is cut, with the layouts of its input and its result."""
    return {
        layer: _parallel_style(style)
        for layer, style in styles.items()
        if style.kind != "replicate"
    }


def _parallel_style(style: Style) -> ParallelStyle:
    kind = RowwiseParallel if style.kind == "rowwise" else ColwiseParallel
    return kind(input_layouts=_layout(style.takes_whole), output_layouts=_layout(style.gives_whole))


def _layout(whole: bool) -> Placement:
    return Replicate() if whole else Shard(-1)

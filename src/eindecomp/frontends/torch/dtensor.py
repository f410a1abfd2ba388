"""`plan.to_dtensor()`: where the tensors of a plan lie, as placements of PyTorch's DTensor."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from torch.distributed.tensor.placement_types import Placement

from eindecomp.errors import GraphError, InputError, PlanError
from eindecomp.frontends.draft import View
from eindecomp.frontends.input_names import check_given, input_name, qualified
from eindecomp.frontends.placements import (
    REDUCE_OPS,
    Coarse,
    InParts,
    Places,
    as_planned,
    coarsest,
    of_shape,
    placed,
    said,
    vertex_cuts,
)
from eindecomp.frontends.tensor_parallel import NOBODY, Followed, Modules, styles_of, tp_plan
from eindecomp.frontends.torch.applying import Applied
from eindecomp.frontends.torch.exporting import (
    exported_program,
    module_lines,
    named_tensors,
    set_otherwise,
)
from eindecomp.frontends.torch.importing import import_module
from eindecomp.frontends.torch.wishes import Placements, shard
from eindecomp.graph.ops import ScatterAdd
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.einsum import EinSum
from eindecomp.layout.cut import Axes, Cut, used_axes
from eindecomp.layout.mesh import Mesh
from eindecomp.planner.plan import Plan


@dataclass(frozen=True)
class DTensorPlan:
    """The placements of every tensor that a plan names, and what can be made of them."""

    plan: Plan
    mesh: Mesh
    """The plan's mesh, or one that has several of its axes as one."""
    device_mesh: DeviceMesh | None
    layouts: Mapping[str, tuple[Placements, ...]]
    """Where inputs lie, or are wanted, and where results are left; then where they are copied."""
    operands: Mapping[str, tuple[Placements | None, ...]]
    """How each vertex wants its operands; None for one whose elements are never read."""
    partials: Mapping[str, Placements]
    """The partial results of vertices, before they are reduced to where the result lies.

    Those of aggregations that DTensor does not know are not there.
    """

    @property
    def mesh_dims(self) -> dict[str, int]:
        """The dimensions of the mesh that placements are for, without those of size 1."""
        return self.mesh.axes

    @property
    def fewest_dims(self) -> dict[str, int]:
        """Those of the device mesh on which DTensor moves least, where inseparable axes are one.

        `init_device_mesh` takes them as its shape and its names.
        """
        return coarsest(self.plan).mesh.axes

    def make_mesh(self, device_type: str) -> DeviceMesh:
        """Make the device mesh of `fewest_dims` from the ranks of the process group, in order."""
        ranks = dist.get_world_size() if dist.is_initialized() else 0
        if ranks != self.plan.devices:
            raise PlanError(
                f"the plan is for {self.plan.devices} devices, the process group has {ranks} ranks"
            )
        return make_mesh(self.plan, coarsest(self.plan), device_type)

    @property
    def placements(self) -> dict[str, Placements]:
        """Where inputs lie, or are wanted, and where results are left."""
        return {name: own[0] for name, own in self.layouts.items()}

    @property
    def weights(self) -> dict[str, Placements]:
        """Where inputs lie by qualified name, as `distribute_tensor` takes them."""
        return {qualified(each.name): self.layouts[each.name][0] for each in self.plan.graph.inputs}

    def distribute(self, tensors: Mapping[str, Tensor]) -> dict[str, DTensor]:
        """Distribute tensors, by their names in the graph or their qualified names."""
        if self.device_mesh is None:
            raise PlanError("to distribute tensors, say over which device_mesh: to_dtensor(mesh)")
        known = {qualified(each.name): each.name for each in self.plan.graph.inputs}
        known |= {name: name for name in self.layouts}
        check_given(self.plan.graph, tensors, known)
        return {
            name: distribute_tensor(tensor, self.device_mesh, self.layouts[known[name]][0])
            for name, tensor in tensors.items()
        }

    def apply(
        self,
        module: nn.Module,
        example_inputs: object = (),
        example_kwargs: Mapping[str, Any] | None = None,
        *,
        device: str | None = None,
    ) -> Applied:
        """The module that the plan's graph was imported from, to be called over the device mesh.

        The example is the one that it was imported with; `device` is another than the mesh's.
        """
        if self.device_mesh is None:
            raise PlanError("to apply a plan, say over which device_mesh: to_dtensor(mesh)")
        imported = import_module(module, example_inputs, example_kwargs)
        known = {vertex.name: (vertex.shape, vertex.dtype) for vertex in imported.graph.inputs}
        for vertex in self.plan.graph.inputs:
            if known.get(vertex.name) != (vertex.shape, vertex.dtype):
                raise InputError(
                    f"the plan is of another module: {vertex.name} of shape {vertex.shape} is an "
                    "input of its graph, but not of this module for these arguments"
                )
        tensors = {input_name(name): own for name, own in named_tensors(module, each_once=True)}
        weights = {name: tensor for name, tensor in tensors.items() if name in known}
        if device is not None:
            weights = {name: tensor.detach().to(device) for name, tensor in weights.items()}
        for name, tensor in weights.items():
            if tensor.device.type == "meta" and device != "meta":
                raise InputError(f"{name!r} has no values: it is on the meta device")
        to = torch.device(device or self.device_mesh.device_type)
        layouts, operands = self.layouts, self.operands
        return Applied(self.plan, self.device_mesh, layouts, operands, imported, weights, to)

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
        kinds, ends = styles_of(self.plan, self._rehearsal(module, example_inputs, example_kwargs))
        styles: dict[str, ParallelStyle] = {}
        for layer, kind in kinds.items():
            if kind != "replicate":
                style = ColwiseParallel if kind == "colwise" else RowwiseParallel
                taken = Shard(-1) if layer in ends.reading else Replicate()
                given = Shard(-1) if layer in ends.leaving else Replicate()
                styles[layer] = style(input_layouts=taken, output_layouts=given)
        return styles

    def _rehearsal(
        self, module: nn.Module | None, example: object, kwargs: Mapping[str, Any] | None
    ) -> Rehearsal | None:
        return None if module is None else Rehearsal(self.plan, module, example, kwargs)


def to_dtensor(plan: Plan, device_mesh: DeviceMesh | None = None) -> DTensorPlan:
    """The placements of a plan, on a device mesh of its shape if one is given.

    Dimensions of size 1 may be added, and axes that the plan never keeps apart may be one. A plan
    that DTensor cannot express is refused with the reason.
    """
    on = as_planned(plan) if device_mesh is None else of_shape(plan, device_mesh.shape)

    def say(name: str, cut: Cut) -> Placements:
        places = placed(on.mesh, on.cut(cut), plan.graph[name].shape, name)
        return torch_placements(places, device_mesh)

    layouts, operands = said(plan, say)
    partials: dict[str, Placements] = {}
    for name, own in vertex_cuts(plan).items():
        vertex = plan.graph[name]
        if own.summed and (reduce_op := _reduce_op(vertex)) is not None:
            places = placed(on.mesh, on.cut(own.made), vertex.shape, name)
            partials[name] = torch_placements(places, device_mesh, on.axes(own.summed), reduce_op)
    return DTensorPlan(plan, on.mesh, device_mesh, layouts, operands, partials)


def _reduce_op(vertex: Vertex) -> str | None:
    """DTensor's word for the aggregation of a vertex, None where it has none."""
    match vertex.op:
        case EinSum(agg=agg) if agg is not None and agg.finish is None and agg.width == 1:
            return REDUCE_OPS.get(agg.name)
        case ScatterAdd():
            return "sum"
        case _:
            return None


def torch_placements(
    places: Places, mesh: DeviceMesh | None = None, pending: Axes = (), reduce_op: str = "sum"
) -> Placements:
    """Placements on a device mesh, which may have dimensions of size 1 besides.

    Along the axes in `pending`, devices have partial results that wait to be reduced.
    """
    placements: list[Placement] = []
    for axis, own in enumerate(places):
        if axis in pending:
            placements.append(Partial(reduce_op))
        elif isinstance(own, InParts):
            placements.append(Partial(own.reduce_op))
        elif own is None:
            placements.append(Replicate())
        else:
            placements.append(shard(own.dim, own.split_factor))
    if mesh is None:
        return tuple(placements)
    rest = iter(placements)
    return tuple(Replicate() if size == 1 else next(rest) for size in mesh.shape)


def make_mesh(plan: Plan, on: Coarse, device_type: str) -> DeviceMesh:
    """A device mesh of the process group's ranks, in order.

    Dimensions along which a sum is needed everywhere are flattened as well, without which DTensor
    would all-reduce along one after the other.
    """
    names = on.mesh.names or ("axis0",)
    ranks = torch.arange(plan.devices).reshape(on.mesh.sizes or (1,))
    mesh = DeviceMesh(device_type, ranks, mesh_dim_names=names)
    flattened: set[Axes] = set()
    for own in vertex_cuts(plan).values():
        kept = used_axes(on.cut(own.home))
        axes = tuple(sorted(axis for axis in on.axes(own.summed) if not kept >> axis & 1))
        if len(axes) > 1 and axes not in flattened:
            flattened.add(axes)
            inner = mesh[tuple(names[axis] for axis in axes)]
            inner._flatten("_".join(names[axis] for axis in axes))  # pyright: ignore[reportPrivateUsage] - nothing else does
    return mesh


# A module exported with the weights of one rank, to see whether its code can work on parts: code
# that counts heads or features itself, as `view(b, -1, heads, d)` does, fails on a part of them or
# takes it for something else. Then an operator has another result than the plan's graph says.

_LOGGER = logging.getLogger("torch._subclasses.fake_tensor")
"""It tells of operators that fail on tensors without elements."""


class Rehearsal:
    """Tells which layers must gather their results so that the module's code can run."""

    def __init__(
        self, plan: Plan, module: nn.Module, example: object, kwargs: Mapping[str, Any] | None
    ) -> None:
        self.devices = plan.devices
        self.module = _without_values(module)
        self.imported = import_module(self.module, example, kwargs)

    def __call__(self, followed: Followed) -> Modules:
        """The layers whose results some code needs whole, of the first such code."""
        local = _without_values(self.module)
        for layers, dim in ((followed.leaving, 0), (followed.reading, 1)):
            for name in layers:
                self._cut(local.get_submodule(name), dim)
        args, kwargs = self.imported.arguments
        try:
            with set_otherwise([(_LOGGER, "disabled", True)]):
                program = exported_program(local, args, kwargs)
        except GraphError as error:
            return self._inside(local, error, followed)
        pairs = zip(self.imported.program.graph.nodes, program.graph.nodes, strict=False)
        for whole, part in pairs:
            view: Any = self.imported.views.get(whole)
            cut = followed.parts.get(view.vertex) if isinstance(view, View) else None
            if cut is not None and whole.op == "call_function":
                has = (any(factor.axis == cut.dim for factor in dim) for dim in view.dims)
                shape = [
                    n // self.devices if own else n for n, own in zip(view.shape, has, strict=True)
                ]
                if part.target != whole.target or [*part.meta["val"].shape] != shape:
                    return cut.by
        return NOBODY

    def _cut(self, layer: nn.Module, dim: int) -> None:
        """Leave a layer the first rank's part of its parameters; of a rowwise bias, all."""
        for name, whole in [*layer.named_parameters(recurse=False)]:
            if dim < whole.dim():
                shape = [*whole.shape]
                shape[dim] //= self.devices
                layer.register_parameter(name, nn.Parameter(whole.new_empty(shape)))

    def _inside(self, local: nn.Module, error: GraphError, followed: Followed) -> Modules:
        """The layers that leave parts inside the module that failed, or a module around it."""
        paths = [path for path, _, _ in module_lines(local, error.__cause__ or error) if path]
        name = paths[-1] if paths else ""
        while name:
            inside = frozenset(each for each in followed.leaving if each.startswith(f"{name}."))
            if inside:
                return inside
            name = name.rpartition(".")[0]
        raise PlanError(f"the module cannot run on parts of its layers: {error}") from error


def _without_values(module: nn.Module) -> nn.Module:
    """A copy of a module on the meta device, where weights that are shared stay so."""
    memo: dict[int, Any] = {}
    for _, tensor in named_tensors(module):
        empty = torch.empty_like(tensor, device="meta")
        memo[id(tensor)] = nn.Parameter(empty) if isinstance(tensor, nn.Parameter) else empty
    return deepcopy(module, memo)

"""A module exported with the weights of one rank, to see whether its code can work on parts.

Code that counts heads or features itself, as `view(b, -1, heads, d)` does, fails on a part of them
or takes it for something else. Then an operator has another result than the plan's graph says.
"""

from __future__ import annotations

import logging
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from eindecomp.errors import GraphError, PlanError
from eindecomp.frontends.record import View
from eindecomp.frontends.tensor_parallel import NOBODY
from eindecomp.frontends.torch.exporting import (
    exported_program,
    module_lines,
    named_tensors,
    set_otherwise,
)
from eindecomp.frontends.torch.importing import import_module

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.frontends.tensor_parallel import Followed, LocalPart, Modules
    from eindecomp.planner.plan import Plan


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

    def __call__(self, found: Followed) -> Modules:
        """The layers whose results some code needs whole, of the first such code."""
        local = _without_values(self.module)
        for layers, dim in ((found.leaving, 0), (found.reading, 1)):
            for name in layers:
                self._cut(local.get_submodule(name), dim)
        args, kwargs = self.imported.arguments
        try:
            with set_otherwise([(_LOGGER, "disabled", True)]):
                program = exported_program(local, args, kwargs)
        except GraphError as error:
            return self._inside(local, error, found)
        pairs = zip(self.imported.program.graph.nodes, program.graph.nodes, strict=False)
        for whole, part in pairs:
            view: Any = self.imported.views.get(whole)
            if (
                whole.op == "call_function"
                and isinstance(view, View)
                and view.vertex in found.parts
            ):
                cut = found.parts[view.vertex]
                if part.target != whole.target or part.meta["val"].shape != self._shape(view, cut):
                    return cut.by
        return NOBODY

    def _cut(self, layer: nn.Module, dim: int) -> None:
        """Leave a layer the first rank's part of its parameters; of a rowwise bias, all."""
        for name, whole in [*layer.named_parameters(recurse=False)]:
            if dim < whole.dim():
                shape = [*whole.shape]
                shape[dim] //= self.devices
                layer.register_parameter(name, nn.Parameter(whole.new_empty(shape)))

    def _shape(self, view: View, cut: LocalPart) -> tuple[int, ...]:
        """The shape that an array has where its vertex is cut."""
        has = [any(factor.axis == cut.dim for factor in dim) for dim in view.dims]
        return tuple(
            size // self.devices if own else size for size, own in zip(view.shape, has, strict=True)
        )

    def _inside(self, local: nn.Module, error: GraphError, found: Followed) -> Modules:
        """The layers that leave parts inside the module that failed, or a module around it."""
        paths = [path for path, _, _ in module_lines(local, error.__cause__ or error) if path]
        name = paths[-1] if paths else ""
        while name:
            inside = frozenset(each for each in found.leaving if each.startswith(f"{name}."))
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

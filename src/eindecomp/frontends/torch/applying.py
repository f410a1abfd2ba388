"""`DTensorPlan.apply(module)`: the module itself over DTensors that lie as the plan says.

The operators of the exported module run one after another, by DTensor's own rules. Before each, its
operands are brought to where the plan wants them; after it, its result to where the plan leaves it.
Where an operator has no rule, its operands are gathered, and that is noted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import fx, nn
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.experimental import implicit_replication
from torch.utils import _pytree

from eindecomp.errors import InputError, RunError
from eindecomp.frontends.input_names import input_name
from eindecomp.frontends.torch.importing import import_module
from eindecomp.frontends.torch.interpreter import IGNORED, INLINED
from eindecomp.frontends.torch.placing import Given, moved, torch_placements
from eindecomp.frontends.torch.run_operator import run_operator
from eindecomp.frontends.torch.weights import first_names, named_tensors
from eindecomp.frontends.torch.wishes import Wanted, Wish, wishes_of
from eindecomp.frontends.views import View
from eindecomp.kernels.torch.tensors import torch_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.distributed.device_mesh import DeviceMesh

    from eindecomp.frontends.placements import PlacedPlan
    from eindecomp.frontends.torch.importing import Imported
    from eindecomp.frontends.torch.placing import Placements
    from eindecomp.graph.graph import Graph

Listener = Callable[[Wish | None, fx.Node, str], None]
"""Is told after each operator: its wish, its node, and why it was run otherwise, if it was."""


class Applied:
    """A module whose tensors are distributed as a plan says: call it as the module.

    Every rank calls it with the same arguments, whole tensors, and gets what the module returns
    with a DTensor for each tensor: `full_tensor()` gathers it. Weights are taken from the module
    when this is made: afterwards each rank holds its shards of them.
    """

    def __init__(
        self,
        placed: PlacedPlan,
        mesh: DeviceMesh,
        imported: Imported,
        weights: Mapping[str, torch.Tensor],
        device: torch.device,
    ) -> None:
        self.placed, self.mesh, self.imported, self.device = placed, mesh, imported, device
        self.listener: Listener | None = None
        self._wishes = wishes_of(imported, placed)
        self._placements = cache(partial(torch_placements, mesh=mesh))
        for node in imported.made:  # some name a device, which may be another than this one
            node.args, node.kwargs = _pytree.tree_map_only(
                torch.device, lambda _: device, (node.args, node.kwargs)
            )
        self._copies: dict[tuple[int, Placements], tuple[DTensor, DTensor]] = {}
        """Tensors with their copies in a second layout, by the tensor's identity and the layout."""
        self._is_trainable = any(value.requires_grad for value in weights.values())
        self._weights = {name: self._given(name, value) for name, value in weights.items()}
        for name, given in self._weights.items():
            self._settle(name, given)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module."""
        inputs = self._inputs(args, kwargs)
        self._copies.clear()
        with torch.no_grad(), implicit_replication():
            found = self._run(
                self.imported.program.graph, inputs, self.imported.program.graph_module
            )
            found = [self._ended(value) for value in found]
        self._copies.clear()
        if torch.is_grad_enabled():
            given = _pytree.tree_leaves((args, kwargs))
            found = [self._without_gradient(each, given) for each in found]
        spec = self.imported.program.module_call_graph[0].signature
        return found if spec is None else _pytree.tree_unflatten(found, spec.out_spec)

    def _without_gradient(self, value: Any, flat: Sequence[Any]) -> Any:
        """A result that tells whoever differentiates it, where the module's has a gradient."""
        wanted = self._is_trainable or any(
            isinstance(each, torch.Tensor) and each.requires_grad for each in flat
        )
        if not wanted or not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return cast("Any", _NoGradient.apply)(value, torch.zeros((), requires_grad=True))

    def _given(self, name: str, value: torch.Tensor) -> Given:
        layouts = self.placed.layouts.get(name)
        home = (Replicate(),) * self.mesh.ndim if layouts is None else self._placements(layouts[0])
        return Given(value, self.mesh, home, name not in self.placed.plan.given)

    def _settle(self, name: str, given: Given) -> None:
        """Take a weight's shards in all layouts that it is read in, and let go of the rest."""
        wishes = self._wishes.values() if given.is_free else ()  # others are moved at every run
        for wish in wishes:
            for source, wanted in wish.operands.items():
                if source.op == "placeholder" and wanted.view.vertex == name:
                    given.at(self._of_array(wanted))
        given.at(None)
        given.value = given.held[given.home].to_local()

    def _inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[fx.Node, Any]:
        """The value of every placeholder."""
        program = self.imported.program
        flat, spec = _pytree.tree_flatten((tuple(args), dict(kwargs)))
        expected = program.call_spec.in_spec
        if expected is not None and spec != expected:
            raise InputError("the arguments are not those of the example that was imported")
        values = iter(flat)
        found: dict[fx.Node, Any] = {}
        placeholders = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
        kinds = torch.export.graph_signature.InputKind
        for spec_of in program.graph_signature.input_specs:
            node = placeholders[spec_of.arg.name]
            view = self.imported.views[node]
            own = next(values) if spec_of.kind is kinds.USER_INPUT else None
            if isinstance(view, View) and view.vertex in self._weights:
                found[node] = self._weights[view.vertex]
            elif isinstance(own, torch.Tensor):
                found[node] = self._checked(node, own)
            elif spec_of.kind is kinds.USER_INPUT:
                found[node] = own
            else:
                found[node] = cast("Any", program.constants[str(spec_of.target)]).to(self.device)
        return found

    def _checked(self, node: fx.Node, value: torch.Tensor) -> Given | DTensor:
        view: View = self.imported.views[node]
        if tuple(value.shape) != view.shape:
            raise InputError(
                f"{node.name} has shape {tuple(value.shape)}; the plan is for {view.shape}"
            )
        return value if isinstance(value, DTensor) else self._given(view.vertex, value)

    def _run(self, graph: fx.Graph, inputs: Mapping[fx.Node, Any], owner: Any) -> Any:
        values = dict(inputs)
        for node in graph.nodes:
            match node.op:
                case "get_attr":
                    values[node] = getattr(owner, str(node.target))
                case "call_function":
                    values[node] = self._call(node, values)
                case "output":
                    return fx.map_arg(node.args[0], values.__getitem__)
                case _:
                    pass
        raise RunError("the exported graph has no output")

    def _call(self, node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
        name = str(node.target)
        if name.rpartition(".")[0] in IGNORED:
            return None
        if name in INLINED:
            args = cast("tuple[Any, ...]", fx.map_arg(node.args, values.__getitem__))
            at = next(k for k, arg in enumerate(args) if isinstance(arg, fx.GraphModule))
            module: fx.GraphModule = args[at]
            names = [each for each in module.graph.nodes if each.op == "placeholder"]
            return self._run(module.graph, dict(zip(names, args[at + 1 :], strict=True)), module)
        wish = self._wishes.get(node)
        args, kwargs = fx.map_arg(
            (node.args, node.kwargs), lambda each: self._operand(node, each, values[each], wish)
        )
        found, why = run_operator(node, args, kwargs, self.mesh)
        if wish is not None and wish.results:
            found = self._at_home(found, wish)
        self._tell(wish, node, why)
        return found

    def _tell(self, wish: Wish | None, node: fx.Node, why: str = "") -> None:
        if self.listener is not None:
            self.listener(wish, node, why)

    def _operand(self, node: fx.Node, source: fx.Node, value: Any, wish: Wish | None) -> Any:
        wanted = None if wish is None else wish.operands.get(source)
        match value:
            case Given():
                return value.at(None if wanted is None else self._of_array(wanted))
            case DTensor() if wanted is not None and self._is_copy(wanted):
                self._tell(wish, node)
                found = self._placed(value, wanted)
                self._tell(Wish(wanted.view.vertex, {}, ()), source)
                return found
            case DTensor():
                return self._placed(value, wanted)
            case _:
                return value

    def _is_copy(self, wanted: Wanted) -> bool:
        """Whether a tensor is wanted in a layout that the plan copies it to, for all readers."""
        return wanted.places in self.placed.layouts.get(wanted.view.vertex, ())[1:]

    def _at_home(self, found: Any, wish: Wish) -> Any:
        """The results of an operator where the plan leaves them."""
        if isinstance(found, tuple | list):
            several = cast("Sequence[Any]", found)
            pairs = zip(several, wish.results, strict=True)
            return [self._placed(each, wanted) for each, wanted in pairs]
        return self._placed(found, wish.results[0])

    def _placed(self, value: Any, wanted: Wanted | None) -> Any:
        """A value where it is wanted; as it is where the plan says nothing."""
        if wanted is None:
            return value
        places = self._of_array(wanted)
        if places is None or not isinstance(value, DTensor):
            return value
        if len(self.placed.layouts.get(wanted.view.vertex, ())) < 2:
            return moved(value, places)
        key = id(value), places
        if key not in self._copies:  # the tensor is kept too, so that its identity stays its own
            self._copies[key] = value, moved(value, places)
        return self._copies[key][1]

    def _of_array(self, wanted: Wanted) -> Placements | None:
        """Where an array is wanted, if that can be said."""
        return None if wanted.of_array is None else self._placements(wanted.of_array)

    def _ended(self, value: Any) -> Any:
        """What the module returns, with nothing pending."""
        if isinstance(value, Given):
            value = value.at(None)
        if isinstance(value, DTensor) and any(each.is_partial() for each in value.placements):
            places = [Replicate() if each.is_partial() else each for each in value.placements]
            return value.redistribute(placements=places)
        return value


class _NoGradient(torch.autograd.Function):
    """The identity, which refuses to be differentiated."""

    @staticmethod
    def forward(_ctx: Any, value: torch.Tensor, _asked: torch.Tensor) -> torch.Tensor:
        """The value itself."""
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *_gradients: Any) -> Any:  # noqa: ARG004
        """Say how gradients are had today."""
        raise RunError(
            "apply() records no gradients: a module runs over DTensors for its results only. To "
            "train, import a module that returns its loss, add gradients and the optimiser by "
            "ed.models.training_step, and run that plan by an engine: docs/pytorch.md, A training "
            "step. Where only the results are wanted, call under torch.no_grad()"
        )


def apply(
    placed: PlacedPlan,
    mesh: DeviceMesh,
    module: nn.Module,
    example_inputs: object = None,
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    device: str | None = None,
) -> Applied:
    """The module distributed as a plan of its graph says; on another device if that is given.

    The example is the one that the graph was imported with; without it, one is made of the graph's
    inputs, which are given by the names of the module's arguments.
    """
    imported = _imported(placed.plan.graph, module, example_inputs, example_kwargs)
    first = dict.fromkeys(input_name(name) for name in first_names(module).values())
    tensors = {input_name(name): tensor for name, tensor in named_tensors(module)}
    inputs = {vertex.name for vertex in imported.graph.inputs}
    weights = {name: tensors[name] for name in first if name in inputs}
    if device is not None:
        weights = {name: tensor.detach().to(device) for name, tensor in weights.items()}
    if device != "meta" and (
        bare := [name for name, tensor in weights.items() if tensor.device.type == "meta"]
    ):
        raise InputError(f"{bare[0]!r} has no values: it is on the meta device")
    return Applied(placed, mesh, imported, weights, torch.device(device or mesh.device_type))


def _imported(
    graph: Graph, module: nn.Module, example: object, kwargs: Mapping[str, Any] | None
) -> Imported:
    """The module imported again; it must be the one whose graph was planned."""
    if example is None and kwargs is None:
        weights = {input_name(name) for name, _ in named_tensors(module)}
        kwargs = {
            vertex.name: torch.empty(vertex.shape, dtype=torch_type(vertex.dtype), device="meta")
            for vertex in graph.inputs
            if vertex.name not in weights
        }
    imported = import_module(module, () if example is None else example, kwargs)
    known = {vertex.name: (vertex.shape, vertex.dtype) for vertex in imported.graph.inputs}
    for vertex in graph.inputs:
        if known.get(vertex.name) != (vertex.shape, vertex.dtype):
            raise InputError(
                f"the plan is of another module: {vertex.name} of shape {vertex.shape} is an input "
                "of its graph, but not of this module for these arguments"
            )
    return imported

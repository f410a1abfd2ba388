"""`DTensorPlan.apply(module)`: the module itself over DTensors that lie as the plan says.

The operators of the exported module run one after another, by DTensor's own rules. Before each, its
operands are brought to where the plan wants them; after it, its result to where the plan leaves it.
Where an operator has no rule, its operands are gathered, and that is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import getitem
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import fx
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.placement_types import Placement
from torch.nn.functional import scaled_dot_product_attention
from torch.utils import _pytree

from eindecomp.errors import InputError, RunError
from eindecomp.frontends.draft import View
from eindecomp.frontends.torch.importing import Imported
from eindecomp.frontends.torch.interpreter import placeholders, walk
from eindecomp.frontends.torch.wishes import Operands, Placements, Wanted, Wish, wishes_of

if TYPE_CHECKING:
    from eindecomp.planner.plan import Plan

    Layouts = Mapping[str, tuple[Placements, ...]]

Listener = Callable[[Wish | None, fx.Node, str], None]
"""Called after each operator with its wish, its node, and why its operands were gathered, if so."""


@dataclass
class Given:
    """An input or weight in each layout that it is read in; a free one moves nothing."""

    value: torch.Tensor
    mesh: DeviceMesh
    home: Placements
    is_free: bool
    held: dict[Placements, DTensor] = field(default_factory=dict["Placements", DTensor])

    def at(self, wanted: Placements | None) -> DTensor:
        """The tensor where it is wanted; every device has all of it to take its part from."""
        places = self.home if wanted is None or not self.is_free else wanted
        if places not in self.held:
            self.held[places] = distribute_tensor(self.value, self.mesh, places, src_data_rank=None)
        tensor = self.held[places]
        return tensor if wanted is None else _moved(tensor, wanted)


def _moved(tensor: DTensor, places: Placements) -> DTensor:
    """A tensor where it is wanted; parts are read where they lie."""
    if tensor.placements == places or any(each.is_partial() for each in places):
        return tensor
    return tensor.redistribute(placements=places)


class Applied:
    """A module whose tensors are distributed as a plan says: call it as the module.

    Every rank calls it with the same arguments, whole tensors, and gets what the module returns
    with a DTensor for each tensor: `full_tensor()` gathers it. Weights are taken from the module
    when this is made: afterwards each rank holds its shards of them.
    """

    def __init__(
        self,
        plan: Plan,
        mesh: DeviceMesh,
        layouts: Layouts,
        operands: Operands,
        imported: Imported,
        weights: Mapping[str, torch.Tensor],
        device: torch.device,
    ) -> None:
        self.plan, self.mesh, self.layouts, self.imported = plan, mesh, layouts, imported
        self.device = device
        self.listener: Listener | None = None
        for node in imported.made:  # some name a device, which may be another than this one
            node.args, node.kwargs = _pytree.tree_map_only(
                torch.device, lambda _: device, (node.args, node.kwargs)
            )
        homes = {name: own[0] for name, own in layouts.items()}
        self._wishes = wishes_of(imported, plan.graph, homes, operands)
        self._copies: dict[tuple[int, Placements], tuple[DTensor, DTensor]] = {}
        """Tensors with their copies in a second layout, by the tensor's identity and the layout."""
        self._is_trainable = any(value.requires_grad for value in weights.values())
        self._weights = {name: self._given(name, value) for name, value in weights.items()}
        for name, given in self._weights.items():
            self._settle(name, given)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module."""
        program = self.imported.program
        values = self._inputs(args, kwargs)
        self._copies.clear()
        with torch.no_grad(), implicit_replication():
            returned = walk(program.graph, values, program.graph_module, self._call)
            results = [self._ended(value) for value in returned]
        self._copies.clear()
        if torch.is_grad_enabled():
            given = _pytree.tree_leaves((args, kwargs))
            results = [self._without_gradient(each, given) for each in results]
        spec = program.module_call_graph[0].signature
        return results if spec is None else _pytree.tree_unflatten(results, spec.out_spec)

    def _without_gradient(self, value: Any, flat: Sequence[Any]) -> Any:
        """A result that refuses to be differentiated, where the module's has a gradient."""
        wanted = self._is_trainable or any(
            isinstance(each, torch.Tensor) and each.requires_grad for each in flat
        )
        if not wanted or not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return cast("Any", _NoGradient.apply)(value, torch.zeros((), requires_grad=True))

    def _given(self, name: str, value: torch.Tensor) -> Given:
        homes = self.layouts.get(name, ((Replicate(),) * self.mesh.ndim,))
        return Given(value, self.mesh, homes[0], name not in self.plan.given)

    def _settle(self, name: str, given: Given) -> None:
        """Take a weight's shards in all layouts that it is read in, and let go of the rest."""
        wishes = self._wishes.values() if given.is_free else ()  # others are moved at every run
        for wish in wishes:
            for source, wanted in wish.operands.items():
                if source.op == "placeholder" and wanted.vertex == name:
                    given.at(wanted.of_array)
        given.at(None)
        given.value = given.held[given.home].to_local()

    def _inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[fx.Node, Any]:
        """The value of every placeholder."""
        program = self.imported.program
        flat, spec = _pytree.tree_flatten((tuple(args), dict(kwargs)))
        expected = program.call_spec.in_spec
        if expected is not None and spec != expected:
            raise InputError("the arguments are not those of the example that was imported")
        arguments = iter(flat)
        values: dict[fx.Node, Any] = {}
        nodes = {node.name: node for node in placeholders(program.graph)}
        kinds = torch.export.graph_signature.InputKind
        for spec_of in program.graph_signature.input_specs:
            node = nodes[spec_of.arg.name]
            view = self.imported.views[node]
            own = next(arguments) if spec_of.kind is kinds.USER_INPUT else None
            if isinstance(view, View) and view.vertex in self._weights:
                values[node] = self._weights[view.vertex]
            elif isinstance(own, torch.Tensor) and tuple(own.shape) != view.shape:
                raise InputError(
                    f"{node.name} has shape {tuple(own.shape)}; the plan is for {view.shape}"
                )
            elif isinstance(own, torch.Tensor) and not isinstance(own, DTensor):
                values[node] = self._given(view.vertex, own)
            elif spec_of.kind is kinds.USER_INPUT:
                values[node] = own
            else:
                values[node] = cast("Any", program.constants[str(spec_of.target)]).to(self.device)
        return values

    def _call(self, node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
        wish = self._wishes.get(node)
        args, kwargs = fx.map_arg(
            (node.args, node.kwargs), lambda each: self._operand(node, each, values[each], wish)
        )
        result, why = _run_operator(node, args, kwargs, self.mesh)
        if wish is not None and wish.results and isinstance(result, tuple | list):
            pairs = zip(cast("Sequence[Any]", result), wish.results, strict=True)
            result = [self._placed(each, wanted) for each, wanted in pairs]
        elif wish is not None and wish.results:
            result = self._placed(result, wish.results[0])
        self._tell(wish, node, why)
        return result

    def _tell(self, wish: Wish | None, node: fx.Node, why: str = "") -> None:
        if self.listener is not None:
            self.listener(wish, node, why)

    def _operand(self, node: fx.Node, source: fx.Node, value: Any, wish: Wish | None) -> Any:
        wanted = None if wish is None else wish.operands.get(source)
        if isinstance(value, Given):
            return value.at(None if wanted is None else wanted.of_array)
        if wanted is None or wanted.of_vertex not in self.layouts.get(wanted.vertex, ())[1:]:
            return self._placed(value, wanted)
        # The plan copies it to this layout for all readers: that is the tensor's, not this one's.
        self._tell(wish, node)
        operand = self._placed(value, wanted)
        self._tell(Wish(wanted.vertex, {}, ()), source)
        return operand

    def _placed(self, value: Any, wanted: Wanted | None) -> Any:
        """A value where it is wanted; as it is where the plan says nothing."""
        if wanted is None or wanted.of_array is None or not isinstance(value, DTensor):
            return value
        if len(self.layouts.get(wanted.vertex, ())) < 2:
            return _moved(value, wanted.of_array)
        key = id(value), wanted.of_array
        if key not in self._copies:  # the tensor is kept too, so that its identity stays its own
            self._copies[key] = value, _moved(value, wanted.of_array)
        return self._copies[key][1]

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


def _run_operator(
    node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], mesh: DeviceMesh
) -> tuple[Any, str]:
    """What an operator returns, and why its operands were gathered, if they were."""
    if node.target is getitem:
        return args[0][args[1]], ""
    if str(node.target) == _ATTENTION and (attended := _local_attention(args, kwargs)) is not None:
        return attended, ""
    target: Any = node.target
    try:
        result = target(*args, **kwargs)
        why = _misshapen(node, result)
    except (NotImplementedError, RuntimeError) as error:
        result, why = None, str(error).strip().splitlines()[0]
    if not why:
        return result, ""
    args, kwargs = _pytree.tree_map_only(DTensor, DTensor.full_tensor, (args, kwargs))
    whole = partial(_replicated, mesh=mesh)
    result = _pytree.tree_map_only(torch.Tensor, whole, target(*args, **kwargs))
    return result, f"DTensor cannot do {target}: {why}"


def _replicated(local: torch.Tensor, mesh: DeviceMesh) -> DTensor:
    return DTensor.from_local(local, mesh, (Replicate(),) * mesh.ndim, run_check=False)


def _misshapen(node: fx.Node, result: Any) -> str:
    """What is wrong with the shapes of an operator's results, for rules of DTensor that err."""
    leaves = (_pytree.tree_leaves(each) for each in (result, node.meta.get("val")))
    for each, meta in zip(*leaves, strict=False):
        if isinstance(each, DTensor) and each.shape != meta.shape:
            return f"its rule makes a shape of {tuple(each.shape)}, not {tuple(meta.shape)}"
    return ""


_ATTENTION = "aten.scaled_dot_product_attention.default"
_BATCH, _HEADS, _QUERIES = 0, 1, 2


def _local_attention(args: Sequence[Any], kwargs: Mapping[str, Any]) -> DTensor | None:
    """Scaled dot-product attention, each device computing its own part; None for other operands.

    DTensor has no rule for it on CPUs, and other rules on each kind of GPU. Sequences, heads and
    queries are independent of each other, so a device that has some of them, with all keys and
    values of theirs, needs no other. Where keys or values are sharded otherwise, they are gathered.
    """
    query, key, value, *more = args
    names = ("attn_mask", "dropout_p", "is_causal")
    given: dict[str, Any] = dict(zip(names, more, strict=False)) | dict(kwargs)
    if not isinstance(query, DTensor) or query.ndim != 4 or given.get("dropout_p"):
        return None
    mesh, causal = query.device_mesh, bool(given.get("is_causal"))
    # With a causal mask that is not given, a query's place among all must be known.
    free = (_BATCH, _HEADS) if causal else (_BATCH, _HEADS, _QUERIES)
    own = tuple(
        each if type(each) is Shard and each.dim in free else Replicate()
        for each in query.placements
    )
    others = tuple(Replicate() if each == Shard(_QUERIES) else each for each in own)
    local = query.redistribute(placements=own).to_local()
    pair: list[Any] = [_local(each, mesh, others) for each in (key, value)]
    if given.get("attn_mask") is not None:
        given["attn_mask"] = _local(given["attn_mask"], mesh, own)
    attended = scaled_dot_product_attention(local, *pair, **given)
    shape = torch.Size((*query.shape[:3], value.shape[3]))
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(attended, mesh, own, run_check=False, shape=shape, stride=stride)


def _local(tensor: Any, mesh: DeviceMesh, places: Sequence[Placement]) -> torch.Tensor:
    """A device's part of a tensor, which is whole along dimensions that it has only one of."""
    tensor = tensor if isinstance(tensor, DTensor) else _replicated(tensor, mesh)
    lacking = 4 - tensor.ndim
    wanted = tuple(
        Shard(each.dim - lacking)
        if isinstance(each, Shard) and each.dim >= lacking and tensor.shape[each.dim - lacking] > 1
        else Replicate()
        for each in places
    )
    return tensor.redistribute(placements=wanted).to_local()

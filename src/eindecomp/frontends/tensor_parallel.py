"""A plan as tensor parallelism layer by layer: which weights are cut along outputs or inputs.

A layer is a sum of products with a weight, which is an input of the graph. Where all devices cut
its outputs it is *colwise*, where they cut what it sums over *rowwise*. Frameworks run all other
modules on what a rank has at hand, so the results of colwise layers are followed through the graph:
where a module needs all of one, the layer gathers it; what lies between layers, such as norms,
convolutions and residual sums, is whole on every device, even where the plan divides it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from eindecomp.errors import PlanError
from eindecomp.frontends.input_names import qualified
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Reshape
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.monoid import SUM
from eindecomp.layout.cut import Axes, pieces_by
from eindecomp.layout.view import Dims, is_planned, view_of

if TYPE_CHECKING:
    from eindecomp.planner.plan import Plan

WEIGHT = ".weight"
"""How the name of a module's weight ends; weights of graphs from elsewhere have other names."""


def tp_plan(plan: Plan, rehearse: Rehearse | None = None) -> dict[str, str]:
    """The plan as Hugging Face's `tp_plan`; numbers of repeated layers are written as `*`."""
    words: dict[str, tuple[str, str]] = {}
    kinds, ends = styles_of(plan, rehearse)
    for layer, kind in kinds.items():
        word = kind
        if kind == "colwise" and layer not in ends.leaving:
            word = "colwise_gather_output"
        elif kind == "rowwise" and layer not in ends.reading:
            word = "rowwise_split_input"
        pattern = of_any_number(layer)
        other, before = words.setdefault(pattern, (layer, word))
        if before != word:
            raise PlanError(
                f"a tp_plan cuts equal layers alike, but {other} is {before} and {layer} {word}"
            )
    return {pattern: word for pattern, (_, word) in words.items()}


def styles_of(plan: Plan, rehearse: Rehearse | None = None) -> tuple[dict[str, str], Followed]:
    """The kind of every layer by its qualified name, and which leave and read parts.

    A plan that cuts otherwise is refused.
    """
    kinds: dict[str, str] = {}
    layers: dict[str, Layer] = {}
    weights = _weights_of_modules(plan.graph)
    for name in plan.decisions:
        layer = _linear(plan, plan.graph[name], weights)
        if layer is None:
            continue
        layers[name] = layer
        if kinds.setdefault(layer.module, layer.kind) != layer.kind:
            raise PlanError(
                f"the plan is not tensor parallel: the weight {layer.module}, which several "
                f"layers share, is {kinds[layer.module]} in one and {layer.kind} in {name}"
            )
    if not set(kinds.values()) - {"replicate"}:
        raise PlanError("the plan is not tensor parallel: no layer's weight is cut")
    return kinds, followed(plan, layers, rehearse)


def _linear(plan: Plan, vertex: Vertex, weights: Collection[str]) -> Layer | None:
    """The layer that a vertex is; of two inputs that are multiplied, the last is the weight."""
    op = vertex.op
    if not isinstance(op, EinSum) or op.agg != SUM or not op.aggregated:
        return None
    for k in reversed(range(len(op.inputs))):
        others = {label for j, own in enumerate(op.inputs) if j != k for label in own}
        own = op.inputs[k]
        inner = tuple(label for label in own if label in op.aggregated)
        outer = tuple(label for label in own if label in op.output and label not in others)
        if not inner or not outer or vertex.inputs[k] not in weights:
            continue
        if len(inner) + len(outer) == len(own) and set(inner) <= others:
            module = qualified(vertex.inputs[k]).removesuffix(WEIGHT)
            layer = Layer(module, "replicate", k, inner, outer)
            return replace(layer, kind=_kind(plan, vertex, layer, own))
    return None


def _weights_of_modules(graph: Graph) -> set[str]:
    """The inputs that may each be the weight of one `nn.Linear` or `nn.Embedding`: a matrix.

    In a graph of modules other parameters are no weights of layers, and modules that share a
    weight have it under the name of the first: then none of them is cut.
    """
    names = [each.name for each in graph.inputs]
    if not any(name.endswith(WEIGHT) for name in names):
        return set(names)
    readers = graph.users()
    return {
        name
        for name in names
        if name.endswith(WEIGHT)
        and len(graph[name].shape) == 2
        and (
            len(readers[name]) == 1
            or all(reader.startswith(name.removesuffix("weight")) for reader in readers[name])
        )
    }


def _kind(plan: Plan, vertex: Vertex, layer: Layer, own: Labels) -> str:
    """Whether a layer's weight is cut along its outputs, its inputs or not at all."""
    view = view_of(plan.graph, vertex)
    axes = dict(zip(view.labels, plan.decisions[vertex.name].assignment, strict=True))
    every = tuple(range(len(plan.mesh.sizes)))
    if not any(axes.values()):
        return "replicate"
    inner, outer = layer.inner, layer.outer
    if vertex.inputs[layer.weight].endswith(WEIGHT) and own != (*outer, *inner):
        raise PlanError(
            f"the plan cuts {layer.module}, which is no nn.Linear: its weight is "
            f"{' × '.join(own)} and sums over {' '.join(inner)}; frameworks cut no other layers"
        )
    sizes = plan.graph.label_sizes(vertex)
    if _leading(plan, outer, axes, sizes) == every:
        return "colwise"
    if _leading(plan, inner, axes, sizes) == every:
        return "rowwise"
    cut = ", ".join(f"{label} {pieces_by(plan.mesh, a)}" for label, a in axes.items() if a)
    raise PlanError(
        f"the plan is not tensor parallel at {vertex.name}: its weight {layer.module} would be cut "
        f"along {' '.join(outer)} (colwise) or {' '.join(inner)} (rowwise) on all {plan.devices} "
        f"devices, the plan cuts {cut}"
    )


def _leading(plan: Plan, labels: Labels, axes: Mapping[str, Axes], size: Mapping[str, int]) -> Axes:
    """The axes that cut one dimension of a layer's weight, made of these labels, into chunks.

    That is, an inner label is cut only where the outer ones are cut into single elements.
    """
    leading: list[int] = []
    for label in labels:
        own = axes.get(label, ())
        leading += own
        if pieces_by(plan.mesh, own) != size[label]:
            break
    return tuple(leading)


Modules = frozenset[str]
NOBODY: Modules = frozenset()


@dataclass(frozen=True, slots=True)
class Layer:
    """A vertex that multiplies by a module's weight: which operand that is, and its labels."""

    module: str
    kind: str
    """colwise, rowwise, or replicate for one that is not cut."""
    weight: int
    inner: Labels
    """The weight's labels that are summed over."""
    outer: Labels
    """The weight's labels that are in the result."""


class LocalPart(NamedTuple):
    """The dimension of which a rank has a part, and the layers whose results are in it."""

    dim: int
    by: Modules


@dataclass(frozen=True, slots=True)
class Followed:
    """Which parts a rank has at hand, and the layers that leave and read them."""

    parts: Mapping[str, LocalPart]
    """By vertex."""
    leaving: Collection[str]
    reading: Collection[str]


Rehearse = Callable[[Followed], Modules]
"""Tells of layers that must gather their results for other reasons than the graph's."""


class _NeedsWhole(Exception):  # noqa: N818 - no error: the walk starts again
    """A vertex needs all of what layers leave in parts."""

    def __init__(self, by: Modules) -> None:
        self.by = by


def followed(plan: Plan, layers: Mapping[str, Layer], rehearse: Rehearse | None = None) -> Followed:
    """The layers that can leave their results in parts so that all vertices get what they need.

    A colwise layer leaves its features in parts. Modules after it compute on a rank's part as if it
    were all, which is right as long as they treat features, or heads, one by one. Who sums over
    them, slices them or meets them with a tensor that is whole needs all: the layers that made the
    parts then gather their results.
    """
    gathering: set[str] = set()
    while True:
        try:
            followed_parts = _walk(plan, layers, gathering)
            needed = NOBODY if rehearse is None else rehearse(followed_parts)
            if not needed:
                return followed_parts
        except _NeedsWhole as whole:
            needed = whole.by
        gathering |= {of_any_number(module) for module in needed}


def of_any_number(layer: str) -> str:
    """A layer's name with `*` for its number among equal ones, as Hugging Face writes it.

    >>> of_any_number("model.layers.12.self_attn.q_proj")
    'model.layers.*.self_attn.q_proj'
    """
    return re.sub(r"\.\d+(?=\.|$)", ".*", layer)


def _walk(plan: Plan, layers: Mapping[str, Layer], gathering: Collection[str]) -> Followed:
    """What all layers leave and read; those in `gathering` gather their results."""
    parts: dict[str, LocalPart] = {}
    leaving: set[str] = set()
    reads: dict[str, Modules] = {}
    for vertex in filter(is_planned, plan.graph.vertices.values()):
        layer = layers.get(vertex.name)
        label, by = _carried(plan.graph, vertex, parts, layer)
        match layer:
            case Layer(module, "colwise", outer=(made, *more)) if label is None:
                if more:
                    _check_whole(plan, vertex, made, {module})
                is_even = vertex.sizes[made] % plan.devices == 0
                if is_even and of_any_number(module) not in gathering:
                    parts[vertex.name] = LocalPart(vertex.labels.index(made), frozenset({module}))
                    leaving.add(module)
            case Layer(module, "rowwise", inner=(summed, *_)) if label in (None, summed):
                before = reads.setdefault(module, by)
                if bool(before) != bool(by):  # one module, called on parts and on a whole
                    raise _NeedsWhole(before | by)
            case None if label is not None:
                if isinstance(vertex.op, Reshape):
                    _check_whole(plan, vertex, label, by)
                dims = _dims_with(label, view_of(plan.graph, vertex).output)
                if len(dims) != 1:
                    raise _NeedsWhole(by)
                parts[vertex.name] = LocalPart(dims[0], by)
            case _ if label is not None:
                raise _NeedsWhole(by)
            case _:
                pass
    if outputs := [parts[each.name].by for each in plan.graph.outputs if each.name in parts]:
        raise _NeedsWhole(NOBODY.union(*outputs))
    return Followed(parts, leaving, {module for module, by in reads.items() if by})


def _carried(
    graph: Graph, vertex: Vertex, parts: Mapping[str, LocalPart], layer: Layer | None
) -> tuple[str | None, Modules]:
    """The one label of which a vertex reads parts, if any, in all operands that have it.

    With it come the layers whose results those are.
    """
    view = view_of(graph, vertex)
    own = [
        (name, dims)
        for k, (name, dims) in enumerate(zip(vertex.inputs, view.reads, strict=True))
        if layer is None or k != layer.weight
    ]
    by = NOBODY.union(*(parts[name].by for name, _ in own if name in parts))
    labels = {
        None if dims is None else dims[parts[name].dim].label for name, dims in own if name in parts
    }
    if not labels:
        return None, NOBODY
    [label, *others] = labels
    biases = {f"{module}.bias" for module in by}  # which are cut with their weights
    agree = all(
        _dims_with(label, dims) == ([parts[name].dim] if name in parts else [])
        or qualified(name) in biases
        for name, dims in own
    )
    if label is None or others or not agree:
        raise _NeedsWhole(by)
    return label, by


def _dims_with(label: str | None, dims: Dims | None) -> list[int]:
    return [d for d, dim in enumerate(dims or ()) if dim.label == label]


def _check_whole(plan: Plan, vertex: Vertex, label: str, modules: Collection[str]) -> None:
    """Refuse parts that are not whole units of a label, such as half heads."""
    view = view_of(plan.graph, vertex)
    size = view.sizes[view.labels.index(label)]
    if size % plan.devices:
        raise PlanError(
            f"the plan cuts {', '.join(sorted(modules))} into {plan.devices} parts, but "
            f"{vertex.name} makes {size} units ({label}) of the result, and no module works on a "
            f"fraction of one: plan for a number of devices that divides {size}"
        )

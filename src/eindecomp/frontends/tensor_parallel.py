"""A plan as tensor parallelism layer by layer: which weights are cut along outputs or inputs.

A layer is a sum of products with a weight, which is an input of the graph. Where all devices cut
its outputs it is *colwise*, where they cut what it sums over *rowwise*. Frameworks run all other
modules on what a rank has at hand, so the results of colwise layers are followed through the graph:
where a module needs all of one, the layer gathers it; what lies between layers, such as norms,
convolutions and residual sums, is whole on every device, even where the plan divides it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from eindecomp.errors import PlanError
from eindecomp.frontends.input_names import qualified
from eindecomp.frontends.plan_cuts import vertex_cuts
from eindecomp.graph.ops import Gather, Reshape
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import SUM
from eindecomp.layout.cut import pieces_by
from eindecomp.layout.view import is_planned, view_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.einsum import Labels
    from eindecomp.layout.cut import Axes, Cut
    from eindecomp.layout.view import Dims
    from eindecomp.planner.plan import Plan

WEIGHT = ".weight"
"""How the name of a module's weight ends; weights of graphs from elsewhere have other names."""


@dataclass(frozen=True, slots=True)
class Style:
    """How one layer's weight is cut, and whether its input and its result are whole."""

    layer: str
    kind: str
    takes_whole: bool = True
    gives_whole: bool = True


def tp_plan(plan: Plan, rehearse: Rehearse | None = None) -> dict[str, str]:
    """The plan as Hugging Face's `tp_plan`; numbers of repeated layers are written as `*`."""
    found: dict[str, tuple[str, str]] = {}
    for layer, style in styles_of(plan, rehearse).items():
        word = _huggingface(style)
        pattern = of_any_number(layer)
        other, before = found.setdefault(pattern, (layer, word))
        if before != word:
            raise PlanError(
                f"a tp_plan cuts equal layers alike, but {other} is {before} and {layer} {word}"
            )
    return {pattern: word for pattern, (_, word) in found.items()}


def _huggingface(style: Style) -> str:
    match style.kind:
        case "colwise" if style.gives_whole:
            return "colwise_gather_output"
        case "rowwise" if style.takes_whole:
            return "rowwise_split_input"
        case kind:
            return kind


def styles_of(plan: Plan, rehearse: Rehearse | None = None) -> dict[str, Style]:
    """The style of every layer by its qualified name; a plan that cuts otherwise is refused."""
    kinds: dict[str, str] = {}
    layers: dict[str, Layer] = {}
    weights = _weights_of_modules(plan.graph)
    for name, own in vertex_cuts(plan).items():
        vertex = plan.graph[name]
        if (layer := _linear(plan, vertex, weights)) is not None:
            layers[name] = layer
        elif isinstance(vertex.op, Gather) and vertex.inputs[0] in weights:
            layer = _embedding(plan, vertex.inputs[0], own.reads[0])
        if layer is not None and kinds.setdefault(layer.module, layer.kind) != layer.kind:
            raise PlanError(
                f"the plan is not tensor parallel: the weight {layer.module}, which several "
                f"layers share, is {kinds[layer.module]} in one and {layer.kind} in {name}"
            )
    if not set(kinds.values()) - {"replicate"}:
        raise PlanError("the plan is not tensor parallel: no layer's weight is cut")
    result = followed(plan, layers, rehearse)
    return {
        module: Style(module, kind, module not in result.reading, module not in result.leaving)
        for module, kind in kinds.items()
    }


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
            layer = Layer(_module(vertex.inputs[k]), "replicate", k, inner, outer)
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


def _leading(
    plan: Plan, labels: Labels, axes: Mapping[str, Axes], sizes: Mapping[str, int]
) -> Axes:
    """The axes that cut labels which are one dimension of a layer's weight into chunks of it.

    That is, an inner label is cut only where the outer ones are cut into single elements.
    """
    found: list[int] = []
    for label in labels:
        own = axes.get(label, ())
        found += own
        if pieces_by(plan.mesh, own) != sizes[label]:
            break
    return tuple(found)


def _embedding(plan: Plan, table: str, read: Cut | None) -> Layer | None:
    """An embedding whose features all devices cut; one that is whole needs no style."""
    every = tuple(range(len(plan.mesh.sizes)))
    if read is None or [span.axes for span in read] != [(), every]:
        return None
    return Layer(_module(table), "embedding_colwise", 0, (), ())


def _module(weight: str) -> str:
    """The module that a weight belongs to.

    >>> _module("W1")
    'W1'
    """
    return qualified(weight).removesuffix(WEIGHT)


Modules = frozenset[str]
NOBODY: Modules = frozenset()


@dataclass(frozen=True, slots=True)
class Layer:
    """A vertex that multiplies by a module's weight: which operand that is, and its labels."""

    module: str
    kind: str
    """colwise, rowwise, embedding_colwise, or replicate for one that is not cut."""
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


class _Carried(NamedTuple):
    """The label of which operands are parts, if any, and the layers that must gather instead."""

    label: str | None
    by: Modules = NOBODY
    conflict: bool = False


def followed(plan: Plan, layers: Mapping[str, Layer], rehearse: Rehearse | None = None) -> Followed:
    """The layers that can leave their results in parts so that all vertices get what they need.

    A colwise layer leaves its features in parts. Modules after it compute on a rank's part as if it
    were all, which is right as long as they treat features, or heads, one by one. Who sums over
    them, slices them or meets them with a tensor that is whole needs all: the layers that made the
    parts then gather their results.
    """
    gathering: set[str] = set()
    while True:
        found = _walk(plan, layers, gathering)
        if isinstance(found, Followed):
            needed = NOBODY if rehearse is None else rehearse(found)
            if not needed:
                return found
        else:
            needed = found
        gathering |= {of_any_number(module) for module in needed}


def of_any_number(layer: str) -> str:
    """A layer's name with `*` for its number among equal ones, as Hugging Face writes it.

    >>> of_any_number("model.layers.12.self_attn.q_proj")
    'model.layers.*.self_attn.q_proj'
    """
    return re.sub(r"\.\d+(?=\.|$)", ".*", layer)


def _walk(
    plan: Plan, layers: Mapping[str, Layer], gathering: Collection[str]
) -> Followed | Modules:
    """What all layers leave and read, or the layers whose results the first vertex needs whole."""
    parts: dict[str, LocalPart] = {}
    leaving: set[str] = set()
    reads: dict[str, Modules] = {}
    for vertex in plan.graph.vertices.values():
        if not is_planned(vertex):
            continue
        layer = layers.get(vertex.name)
        carried = _carried(plan.graph, vertex, parts, layer)
        if carried.conflict:
            return carried.by
        match layer.kind if layer else None:
            case "colwise" if layer and carried.label is None:
                made = _made_by(plan, vertex, layer)
                if made is not None and of_any_number(layer.module) not in gathering:
                    parts[vertex.name] = made
                    leaving.add(layer.module)
            case "rowwise" if layer and carried.label in (None, layer.inner[0]):
                before = reads.setdefault(layer.module, carried.by)
                if bool(before) != bool(carried.by):  # one module, called on parts and on a whole
                    return before | carried.by
            case _ if carried.label is None:
                pass
            case None if (dim := _dim_of(plan, vertex, carried)) is not None:
                parts[vertex.name] = LocalPart(dim, carried.by)
            case _:
                return carried.by
    outputs = [parts[each.name].by for each in plan.graph.outputs if each.name in parts]
    if outputs:
        return NOBODY.union(*outputs)
    return Followed(parts, leaving, {module for module, by in reads.items() if by})


def _made_by(plan: Plan, vertex: Vertex, layer: Layer) -> LocalPart | None:
    """The part that a colwise layer leaves; uneven ones it must gather."""
    label = layer.outer[0]
    if len(layer.outer) > 1:
        _check_whole(plan, vertex, label, {layer.module})
    size = vertex.sizes[label]
    even = size % plan.devices == 0
    return LocalPart(vertex.labels.index(label), frozenset({layer.module})) if even else None


def _carried(
    graph: Graph, vertex: Vertex, parts: Mapping[str, LocalPart], layer: Layer | None
) -> _Carried:
    """The label of which a vertex reads parts: in all operands that have it, and no other label."""
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
        return _Carried(None)
    [label, *others] = labels
    agree = all(
        _dims_with(label, dims) == ([parts[name].dim] if name in parts else [])
        or _is_bias_of(by, name)
        for name, dims in own
    )
    return _Carried(label, by, label is None or bool(others) or not agree)


def _dims_with(label: str | None, dims: Dims | None) -> list[int]:
    return [d for d, dim in enumerate(dims or ()) if dim.label == label]


def _is_bias_of(modules: Modules, name: str) -> bool:
    """Whether an input is the bias of one of these layers, which is cut with its weight."""
    return qualified(name) in {f"{module}.bias" for module in modules}


def _dim_of(plan: Plan, vertex: Vertex, carried: _Carried) -> int | None:
    """The dimension of the result of which a rank has a part, None if it has none."""
    if isinstance(vertex.op, Reshape) and carried.label is not None:
        _check_whole(plan, vertex, carried.label, carried.by)
    dims = _dims_with(carried.label, view_of(plan.graph, vertex).output)
    return dims[0] if len(dims) == 1 else None


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

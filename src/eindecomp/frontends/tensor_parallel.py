"""A plan as tensor parallelism layer by layer: which weights are cut along outputs or inputs.

A layer is a sum of products with a weight, which is an input of the graph. Where all devices cut
its outputs it is *colwise*, where they cut what it sums over *rowwise*. What lies between layers,
such as norms and residual sums, has no weights to cut: frameworks leave it whole on every device,
where a plan may divide it; the same bytes move.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.errors import PlanError
from eindecomp.frontends.layouts import layouts_of, vertex_cuts
from eindecomp.frontends.names import qualified
from eindecomp.graph.ops import Gather, Input
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import SUM
from eindecomp.planner.space.cut import pieces_by
from eindecomp.planner.space.view import view_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.frontends.layouts import VertexCuts
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.einsum import Labels
    from eindecomp.planner.plan import Plan
    from eindecomp.planner.space.cut import Axes, Cut

UNCUT = ("sequence_parallel", "divided")
"""The kinds of layers that have all of their weight on every device."""
WHOLE = None
"""Where all devices have the same."""
FEATURES = -1
"""The last dimension of an activation, which holds its features."""


@dataclass(frozen=True, slots=True)
class Style:
    """How one layer is cut, and which dimension of its input and result devices divide."""

    layer: str
    kind: str
    """colwise, rowwise, embedding_colwise, or what has no weight to cut but divides positions:
    sequence_parallel for a norm, divided for an embedding."""
    input: int | None = WHOLE
    output: int | None = WHOLE
    gathered: bool = False
    """Whether the whole result is wanted afterwards, by its readers or by the caller."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer in the graph: the vertex, the operand that is its weight, and what each label is."""

    vertex: Vertex
    weight: int
    inner: Labels
    """The weight's labels that are summed over."""
    outer: Labels
    """The weight's labels that are in the result."""


def tp_plan(plan: Plan) -> dict[str, str]:
    """The plan as Hugging Face's `tp_plan`; numbers of repeated layers are written as `*`."""
    found: dict[str, tuple[str, str]] = {}
    for layer, style in styles_of(plan).items():
        if style.kind in UNCUT:
            continue
        word = _huggingface(style)
        pattern = of_any_number(layer)
        other, before = found.setdefault(pattern, (layer, word))
        if before != word:
            raise PlanError(
                f"a tp_plan cuts equal layers alike, but {other} is {before} and {layer} {word}"
            )
    return {pattern: word for pattern, (_, word) in found.items()}


def of_any_number(layer: str) -> str:
    """A layer's name with `*` for its number among equal ones, as Hugging Face writes it.

    >>> of_any_number("model.layers.12.self_attn.q_proj")
    'model.layers.*.self_attn.q_proj'
    """
    return re.sub(r"\.\d+(?=\.|$)", ".*", layer)


def _huggingface(style: Style) -> str:
    match style.kind:
        case "colwise" if style.gathered:
            return "colwise_gather_output"
        case "rowwise" if style.input is WHOLE:
            return "rowwise_split_input"
        case kind:
            return kind


def styles_of(plan: Plan) -> dict[str, Style]:
    """The style of every layer by its qualified name; a plan that cuts otherwise is refused."""
    cuts = vertex_cuts(plan)
    lies = {name: found[0] for name, found in layouts_of(plan).items()}
    found: dict[str, Style] = {}
    for name, own in cuts.items():
        vertex = plan.graph[name]
        style = None
        if (layer := _layer_of(plan.graph, vertex)) is not None:
            style = _style(plan, layer, own, lies, _is_gathered(plan, name, cuts))
        elif isinstance(vertex.op, Gather):
            style = _embedding(plan, vertex, own)
        elif (weight := _norm_weight(plan.graph, vertex)) is not None:
            style = _norm(plan, vertex, weight, own)
        if style is not None:
            before = found.setdefault(style.layer, style)
            if before.kind != style.kind:
                raise PlanError(
                    f"the plan is not tensor parallel: the weight {style.layer}, which several "
                    f"layers share, is {before.kind} in one and {style.kind} in {name}"
                )
    if all(style.kind in UNCUT for style in found.values()):
        raise PlanError("the plan is not tensor parallel: no layer's weight is cut")
    return found


def _layer_of(graph: Graph, vertex: Vertex) -> _Layer | None:
    """The layer that a vertex is; of two inputs that are multiplied, the last is the weight."""
    op = vertex.op
    if not isinstance(op, EinSum) or op.agg != SUM or not op.aggregated:
        return None
    for k in reversed(range(len(op.inputs))):
        others = {label for j, own in enumerate(op.inputs) if j != k for label in own}
        own = op.inputs[k]
        inner = tuple(label for label in own if label in op.aggregated)
        outer = tuple(label for label in own if label in op.output and label not in others)
        if not isinstance(graph[vertex.inputs[k]].op, Input) or not inner or not outer:
            continue
        if len(inner) + len(outer) == len(own) and set(inner) <= others:
            return _Layer(vertex, k, inner, outer)
    return None


def _style(
    plan: Plan, layer: _Layer, own: VertexCuts, lies: Mapping[str, Cut], gathered: bool
) -> Style | None:
    vertex = layer.vertex
    axes = _axes_by_label(plan, vertex)
    every = tuple(range(len(plan.mesh.sizes)))
    if not any(axes.values()):
        return None  # computed by every device alike
    sizes = plan.graph.label_sizes(vertex)
    name = _module(vertex.inputs[layer.weight])
    data = [k for k in range(len(vertex.inputs)) if k != layer.weight and own.reads[k] is not None]
    activation = vertex.inputs[data[0]] if data else None
    if _leading(plan, layer.outer, axes, sizes) == every:
        return Style(name, "colwise", _divided(plan, layer, activation, lies), FEATURES, gathered)
    if _leading(plan, layer.inner, axes, sizes) == every:
        divides = _divided(plan, layer, activation, lies)
        return Style(name, "rowwise", divides, _dimension(vertex, own.home, every, layer.outer))
    cut = ", ".join(f"{label} {pieces_by(plan.mesh, a)}" for label, a in axes.items() if a)
    raise PlanError(
        f"the plan is not tensor parallel at {vertex.name}: its weight {name} would be cut along "
        f"{' '.join(layer.outer)} (colwise) or {' '.join(layer.inner)} (rowwise) on all "
        f"{plan.devices} devices, the plan cuts {cut}"
    )


def _axes_by_label(plan: Plan, vertex: Vertex) -> dict[str, Axes]:
    view = view_of(plan.graph, vertex)
    return dict(zip(view.labels, plan.decisions[vertex.name].assignment, strict=True))


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


def _divided(
    plan: Plan, layer: _Layer, activation: str | None, lies: Mapping[str, Cut]
) -> int | None:
    """Which dimension of the activation that a layer reads devices divide where it lies."""
    if activation is None or activation not in lies:
        return WHOLE
    every = tuple(range(len(plan.mesh.sizes)))
    source = plan.graph[activation]
    read = layer.vertex.op
    position = layer.vertex.inputs.index(activation)
    labels = read.inputs[position] if isinstance(read, EinSum) else ()
    features = tuple(label for label in labels if label in layer.inner)
    dims = [d for d, label in enumerate(labels) if label in features]
    return _cut_dimension(source.name, lies[activation], every, dims)


def _dimension(vertex: Vertex, cut: Cut, every: Axes, features: Labels) -> int | None:
    dims = [d for d, label in enumerate(vertex.labels) if label in features]
    return _cut_dimension(vertex.name, cut, every, dims)


def _cut_dimension(tensor: str, cut: Cut, every: Axes, features: Sequence[int]) -> int | None:
    """The one dimension that all axes cut, None if none does."""
    used = {d: span.axes for d, span in enumerate(cut) if span.axes}
    if not used:
        return WHOLE
    [(dim, axes), *others] = used.items()
    if others or axes != every:
        raise PlanError(f"the plan is not tensor parallel: devices divide {tensor} otherwise")
    return FEATURES if dim in features else dim


def _is_gathered(plan: Plan, name: str, cuts: Mapping[str, VertexCuts]) -> bool:
    """Whether those who read a result want all of it; who called the model does."""
    wanted = [
        cut
        for reader in plan.graph.users().get(name, ())
        for source, cut in zip(plan.graph[reader].inputs, cuts[reader].reads, strict=True)
        if source == name and cut is not None
    ]
    return all(not span.axes for cut in wanted for span in cut)


def _embedding(plan: Plan, vertex: Vertex, own: VertexCuts) -> Style | None:
    """An embedding whose features or positions are cut; one that is whole needs no style."""
    table, read = vertex.inputs[0], own.reads[0]
    if not isinstance(plan.graph[table].op, Input) or read is None:
        return None
    every = tuple(range(len(plan.mesh.sizes)))
    if _cut_dimension(table, read, every, ()) is not WHOLE:
        return Style(_module(table), "embedding_colwise", WHOLE, FEATURES)
    divided = _cut_dimension(vertex.name, own.made, every, ())
    return None if divided is WHOLE else Style(_module(table), "divided", WHOLE, divided)


def _norm_weight(graph: Graph, vertex: Vertex) -> int | None:
    """The operand of an element-wise vertex that is a vector of weights."""
    op = vertex.op
    if not isinstance(op, EinSum) or op.aggregated or len(op.output) < 2:
        return None
    vectors = (
        k
        for k, source in enumerate(vertex.inputs)
        if isinstance(graph[source].op, Input)
        and op.inputs[k] == op.output[-1:]
        and not qualified(source).endswith(".bias")
    )
    return next(vectors, None)


def _norm(plan: Plan, vertex: Vertex, weight: int, own: VertexCuts) -> Style | None:
    """A norm whose positions devices divide."""
    every = tuple(range(len(plan.mesh.sizes)))
    cut = [d for d, span in enumerate(own.made) if span.axes]
    if len(cut) != 1 or cut[0] == len(own.made) - 1 or own.made[cut[0]].axes != every:
        return None
    return Style(_module(vertex.inputs[weight]), "sequence_parallel", cut[0], cut[0])


def _module(weight: str) -> str:
    """The module that a weight belongs to.

    >>> _module("W1")
    'W1'
    """
    return qualified(weight).removesuffix(".weight")

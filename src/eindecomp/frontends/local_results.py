"""Which part of each tensor a rank has at hand where layers are cut and all else is left as it is.

A colwise layer leaves its features in parts. Modules after it compute on a rank's part as if it
were all, which is right as long as they treat features, or heads, one by one. Who sums over them,
slices them or meets them with a tensor that is whole needs all: the layers that made the parts then
gather their results.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from eindecomp.errors import PlanError
from eindecomp.frontends.names import qualified
from eindecomp.graph.ops import Reshape
from eindecomp.layout.view import is_planned, view_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.einsum import Labels
    from eindecomp.layout.view import Dims
    from eindecomp.planner.plan import Plan

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


class Part(NamedTuple):
    """The dimension of which a rank has a part, and the layers whose results are in it."""

    dim: int
    by: Modules


@dataclass(frozen=True, slots=True)
class Followed:
    """Which parts a rank has at hand, and the layers that leave and read them."""

    parts: Mapping[str, Part]
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
    """The layers, by vertex, that can leave parts so that all vertices get what they need."""
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
    parts: dict[str, Part] = {}
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
                parts[vertex.name] = Part(dim, carried.by)
            case _:
                return carried.by
    outputs = [parts[each.name].by for each in plan.graph.outputs if each.name in parts]
    if outputs:
        return NOBODY.union(*outputs)
    return Followed(parts, leaving, {module for module, by in reads.items() if by})


def _made_by(plan: Plan, vertex: Vertex, layer: Layer) -> Part | None:
    """The part that a colwise layer leaves; uneven ones it must gather."""
    label = layer.outer[0]
    if len(layer.outer) > 1:
        _check_whole(plan, vertex, label, {layer.module})
    size = vertex.sizes[label]
    even = size % plan.devices == 0
    return Part(vertex.labels.index(label), frozenset({layer.module})) if even else None


def _carried(
    graph: Graph, vertex: Vertex, parts: Mapping[str, Part], layer: Layer | None
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

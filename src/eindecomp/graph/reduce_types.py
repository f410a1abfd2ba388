"""The types in which partial results travel, where those are not the ones they accumulate in.

Each device rounds its part of a sum to such a type. Whoever combines parts does so in the type in
which sums accumulate, and rounds once more, to the type of the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from eindecomp.errors import ExpressionError, PlanError, quote, suggest
from eindecomp.graph.graph import Graph
from eindecomp.graph.parts import aggregates, has_plain_parts
from eindecomp.graph.rewrites.rebuild import rebuilt
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.work import state_types
from eindecomp.lang.dtypes import DType, Kind, dtype, kind

ALL, GRADIENTS, ACTIVATIONS = "all", "gradients", "activations"
ROLES = {
    ALL: "all partial results",
    GRADIENTS: "sums by which tied state is updated, element by element",
    ACTIVATIONS: "all others",
}
ReduceTypes = Mapping[str, str]
"""For tensors, or for all of a role, the type in which partial results travel."""


def reduce_types(graph: Graph, given: object, written: Graph | None = None) -> ReduceTypes:
    """What was given, by tensor or role, checked against a graph, and as it was written."""
    if given is None:
        return {}
    wanted: dict[Any, Any] = dict(given) if isinstance(given, Mapping) else {ALL: given}  # pyright: ignore[reportUnknownArgumentType]
    checked: dict[str, str] = {}
    for name, of in wanted.items():  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(name, str) or not (name in graph or name in ROLES):
            known = suggest(str(name), [*ROLES, *graph.vertices])  # pyright: ignore[reportUnknownArgumentType]
            if written is not None and name in written:
                raise PlanError(f"reduce_dtype: rewriting has fused {name!r} into what reads it")
            raise PlanError(f"reduce_dtype: {quote(str(name))} is no tensor and no role{known}")  # pyright: ignore[reportUnknownArgumentType]
        checked[name] = _float(of).name
    return checked


def _float(given: object) -> DType:
    try:
        of = dtype(given)
    except ExpressionError as error:
        raise PlanError(f"reduce_dtype: {error}") from None
    if kind(of) is not Kind.FLOAT:
        raise PlanError(f"reduce_dtype: partial results travel as floating-point numbers, not {of}")
    return of


def with_reduce_types(graph: Graph, types: ReduceTypes, tie: Mapping[str, str]) -> Graph:
    """The graph in which vertices say in what type their partial results travel.

    A type that is not smaller than that in which they accumulate changes nothing, nor does it where
    a part is not one floating-point number.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> graph = parse("input X[i: 3, j: 4]\\nZ[i] <- sum X[i,j]\\noutput Z")
    >>> with_reduce_types(graph, {"all": "bfloat16"}, {})["Z"].reduce_dtype
    dtype(bfloat16)
    """
    if not types:
        return graph
    gradients = _gradients(graph, tie) if {*types} & {GRADIENTS, ACTIVATIONS} else set[str]()

    def put(vertex: Vertex, made: Graph) -> bool:
        role = GRADIENTS if vertex.name in gradients else ACTIVATIONS
        of = next((types[key] for key in (vertex.name, role, ALL) if key in types), None)
        narrow = None if of is None else _narrowed(graph, vertex, dtype(of))
        made.append(vertex if narrow is None else replace(vertex, reduce_dtype=narrow))
        return True

    return rebuilt(graph, put)


def _narrowed(graph: Graph, vertex: Vertex, of: DType) -> DType | None:
    """The type, if partial results of a vertex are single numbers of a larger one."""
    if not has_plain_parts(vertex):
        return None
    [wide] = state_types(graph, vertex)
    return of if kind(wide) is Kind.FLOAT and of.itemsize < wide.itemsize else None


def _gradients(graph: Graph, tie: Mapping[str, str]) -> set[str]:
    """The sums by which tied inputs are updated, and what is made of them element by element."""
    found: set[str] = set()
    for name in tie.values():
        left, elements = [name], graph[name].elements
        while left:
            vertex = graph[left.pop()]
            if vertex.name in found or vertex.elements != elements:
                continue
            found.add(vertex.name)
            left += () if aggregates(vertex) else vertex.inputs
    return found

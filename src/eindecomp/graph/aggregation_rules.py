"""How an adjoint passes through an aggregation, back to the joined values.

Each rule gives, for every joined value v of Z ← ⊕ v, the expression of what reaches v: over the
vertex's own inputs and over further tensors (the adjoint of Z, Z itself, counts, …) that it adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.errors import GradientError
from eindecomp.lang.dtypes import LOW_PRECISION, Kind, kind
from eindecomp.lang.monoid import PROD, SUM, Monoid
from eindecomp.lang.scalar import Arg, Expr, call, replace_args, values

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.einsum import EinSum, Labels


@dataclass(frozen=True, slots=True)
class Back:
    """What reaches each joined value, over the vertex's inputs followed by `operands`."""

    operands: tuple[tuple[str, Labels], ...]
    adjoints: tuple[Expr, ...]


def joined_adjoints(graph: Graph, vertex: Vertex, op: EinSum, adjoint: str) -> Back:
    """Apply the rule of a vertex's aggregation, adding the vertices it needs to the graph."""
    g = Arg(len(op.inputs))
    of_z = (adjoint, vertex.labels)
    name = None if op.agg is None else op.agg.name
    match name:
        case None | "sum":
            return Back((of_z,), (g,))
        case "max" | "min":
            return _extreme(graph, vertex, op, of_z)
        case "prod":
            return _product(graph, vertex, op, of_z)
        case _ if op.agg is not None and op.agg.rule is not None:
            return _given_rule(graph, vertex, op, op.agg, op.agg.rule, of_z)
        case _:
            raise GradientError(f"{vertex}: aggregation {name!r} has no gradient rule")


def _aside(graph: Graph, vertex: Vertex, op: EinSum, what: str, join: Expr, agg: Monoid) -> str:
    """Add a vertex like `vertex` with another join and aggregation."""
    operands = list(zip(vertex.inputs, op.inputs, strict=True))
    name = graph.fresh(f"grad_{vertex.name}_{what}")
    return graph.add_einsum(op.output, operands, join, agg, name, vertex.sizes).name


def _extreme(graph: Graph, vertex: Vertex, op: EinSum, of_z: tuple[str, Labels]) -> Back:
    """max, min: the adjoint goes to the values equal to the result, in equal shares.

    Equal means equal: whatever runs this must compute the join here as it did for the result.
    """
    n = len(op.inputs)
    g, z, count = Arg(n), Arg(n + 1), Arg(n + 2)
    # The result was rounded to its type, so what is compared with it must be as well.
    rounded = call(vertex.dtype.name, op.join) if vertex.dtype in LOW_PRECISION else op.join
    hit = call("eq", rounded, z)
    # Ties are counted over the joined values, which need the result beside the vertex's inputs.
    operands = [*zip(vertex.inputs, op.inputs, strict=True), (vertex.name, op.output)]
    ties = replace_args(hit, [*map(Arg, range(n)), g, Arg(n)])
    ties = call(vertex.dtype.name, ties)
    name = graph.fresh(f"grad_{vertex.name}_ties")
    made = graph.add_einsum(op.output, operands, ties, SUM, name, vertex.sizes)
    tensors = (of_z, (vertex.name, op.output), (made.name, op.output))
    return Back(tensors, (call("where", hit, call("div", g, count), 0),))


def _product(graph: Graph, vertex: Vertex, op: EinSum, of_z: tuple[str, Labels]) -> Back:
    """prod: the product of all other values, told apart by how many values are zero."""
    n = len(op.inputs)
    g, zeros, rest = Arg(n), Arg(n + 1), Arg(n + 2)
    is_zero = call("eq", op.join, 0)
    count = _aside(graph, vertex, op, "zeros", call("int32", is_zero), SUM)
    others = _aside(graph, vertex, op, "nonzero", call("where", is_zero, 1, op.join), PROD)
    alone = call("where", call("eq", zeros, 1), rest, 0)
    share = call("where", call("eq", zeros, 0), call("div", rest, op.join), 0)
    slope = call("where", is_zero, alone, share)
    return Back((of_z, (count, op.output), (others, op.output)), (_times(g, slope, graph, vertex),))


def _given_rule(
    graph: Graph, vertex: Vertex, op: EinSum, agg: Monoid, rule: Expr, of_z: tuple[str, Labels]
) -> Back:
    """A user's own rule, over the joined values, the final state and the result."""
    n, k = len(op.inputs), agg.width
    g = Arg(n)
    # A state of one number without a finish is the result itself.
    is_result = agg.finish is None
    states = (
        [vertex.name]
        if is_result
        else [_aside(graph, vertex, op, f"state{i}", op.join, agg.select(i)) for i in range(k)]
    )
    state_args = [Arg(n + 1 + i) for i in range(k)]
    result = state_args[0] if is_result else Arg(n + 1 + k)
    slopes = values(replace_args(rule, [*values(op.join), *state_args, result]))
    tensors = [of_z, *((state, op.output) for state in states)]
    if not is_result:
        tensors.append((vertex.name, op.output))
    return Back(tuple(tensors), tuple(_times(g, slope, graph, vertex) for slope in slopes))


def _times(adjoint: Expr, slope: Expr, graph: Graph, vertex: Vertex) -> Expr:
    is_complex = any(kind(graph[name].dtype) is Kind.COMPLEX for name in vertex.inputs)
    return call("mul", adjoint, call("conj", slope) if is_complex else slope)

"""A vertex as a chain of joins of tensors that distributes over its aggregation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.monoid import Monoid, distributes
from eindecomp.lang.scalar import Arg, Call, Expr, call, replace_args, used_args
from eindecomp.lang.scalar_types import type_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex

PLAIN = Arg(0)
"""The map that leaves a tensor as it is."""
_JOINS = frozenset({"mul", "add", "min", "max", "and", "or"})
"""The binary functions that distribute over some aggregation: all associative and commutative."""


@dataclass(frozen=True, slots=True)
class ChainFactor:
    """A tensor in a chain of joins, and the map (of input 0) that is still to be applied to it."""

    name: str
    labels: Labels
    map: Expr = PLAIN


@dataclass(frozen=True, slots=True)
class Chain:
    """Factors joined by one binary function, and the aggregation it distributes over, if any."""

    join: str
    agg: Monoid | None
    factors: tuple[ChainFactor, ...]
    output: Labels


def chain_of(vertex: Vertex, graph: Graph) -> Chain | None:
    """A vertex of two tensors or more as a chain of joins; None if it is none.

    A chain with an aggregation may be computed in any order: its join distributes over it.
    """
    op = vertex.op
    if not isinstance(op, EinSum) or not isinstance(op.join, Call) or len(op.inputs) < 2:
        return None
    if len(used_args(op.join)) < len(op.inputs):
        return None
    join = op.join.op
    if not (join in _JOINS if op.agg is None else distributes(join, op.agg)):
        return None
    parts = list(_links_apart(op.join, join))
    if any(len(used_args(part)) > 1 for part in parts) or not _is_of_one_type(vertex, op, graph):
        return None
    maps: dict[int, Expr] = {}
    for part in sorted(parts, key=lambda part: not used_args(part)):
        # A literal or run-time scalar rides along with the first tensor.
        [k] = used_args(part) or (0,)
        mapped = replace_args(part, {k: Arg(0)})
        maps[k] = call(join, maps[k], mapped) if k in maps else mapped
    factors = (
        ChainFactor(name, labels, maps[k])
        for k, (name, labels) in enumerate(zip(vertex.inputs, op.inputs, strict=True))
    )
    return Chain(join, op.agg, tuple(factors), op.output)


def join_factors(factors: Sequence[ChainFactor], op: str) -> Expr:
    """The join of factors, the first one being input 0."""
    first, *rest = (replace_args(factor.map, {0: Arg(k)}) for k, factor in enumerate(factors))
    for value in rest:
        first = call(op, first, value)
    return first


def _is_of_one_type(vertex: Vertex, op: EinSum, graph: Graph) -> bool:
    """Whether a chain is computed in one type from its first link on: order then changes no range.

    In `Y * Z * X` two narrow numbers meet first, and may wrap around or overflow as they do.
    """
    types = [graph[name].dtype for name in vertex.inputs]
    whole = type_of(op.join, types, graph.scalars)
    return all(type_of(link, types, graph.scalars) == whole for link in _links(op.join))


def _links(expr: Expr) -> Iterator[Call]:
    """The calls of a chain of one binary function."""
    if isinstance(expr, Call):
        yield expr
        for arg in expr.args:
            if isinstance(arg, Call) and arg.op == expr.op:
                yield from _links(arg)


def _links_apart(expr: Expr, op: str) -> Iterator[Expr]:
    """The operands of a chain of one binary function, from left to right."""
    if isinstance(expr, Call) and expr.op == op:
        for arg in expr.args:
            yield from _links_apart(arg, op)
    else:
        yield expr

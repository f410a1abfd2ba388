"""Turning n-ary EinSums into binary ones, in the order that costs the least arithmetic.

Where ⊗ distributes over ⊕ (products under a sum, sums under a max, …) labels are aggregated as soon
as nothing else needs them, along the path that opt_einsum finds, or in an order that is given. Any
other join with an aggregation has parts split off into element-wise vertices, as long as a part is
no larger than the tensors around it; what is left stays one n-ary vertex, as element-wise joins
always do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from eindecomp.graph.graph import Graph
from eindecomp.graph.orders import Contraction, Order, Step, order_of, path_of, steps_of
from eindecomp.graph.rewrites.rebuild import rebuilt
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.windows import with_windows_apart
from eindecomp.graph.work import MOST_OPERANDS, calls_of
from eindecomp.lang.dtypes import FLOAT32, LOW_PRECISION, Kind, concrete, kind, promote
from eindecomp.lang.einsum import EinSum, Labels, Operands
from eindecomp.lang.monoid import Monoid, distributes
from eindecomp.lang.scalar import (
    Arg,
    Call,
    Expr,
    call,
    leaves,
    replace_args,
    substitute,
    used_args,
    values,
)
from eindecomp.lang.scalar_types import type_of


@with_windows_apart
def order_contractions(graph: Graph) -> Graph:
    """Make every aggregating vertex binary where that is correct and costs no memory.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "Z[i] <- sum A[i,j] * B[j,k] * C[k]\\noutput Z"
    >>> print(order_contractions(parse("input A[i: 9, j: 9], B[j, k: 9], C[k]\\n" + text)))
    input A[i: 9, j: 9]
    input B[j: 9, k: 9]
    input C[k: 9]
    Z_1[j] <- sum B[j,k] * C[k]
    Z[i] <- sum A[i,j] * Z_1[j]
    output Z
    """
    return order_as(graph, {})[0]


def order_as(graph: Graph, orders: Mapping[str, Order]) -> tuple[Graph, dict[str, list[str]]]:
    """The same with given orders of some contractions, which may leave several operands together.

    Also returns, for each of those, the vertices that it has become, in the order of `steps_of`.
    """
    made: dict[str, list[str]] = {}

    def put(vertex: Vertex, ordered: Graph) -> bool:
        match vertex.op:
            case EinSum(agg=Monoid()) as op if len(used_args(op.join)) == len(op.inputs) > 2:
                chain = chain_of(vertex, graph)
                if chain is None:
                    _split(vertex, op, ordered)
                elif vertex.name in orders:
                    steps = steps_of(orders[vertex.name], len(op.inputs))
                    made[vertex.name] = _contract(vertex, chain, steps, ordered)
                else:
                    _contract(vertex, chain, usual_steps(chain, graph), ordered)
                return True
            case _:
                return False

    return rebuilt(graph, put), made


def usual_steps(chain: Chain, graph: Graph) -> list[Step]:
    """The order of pairwise contractions of the fewest operations, or the best known of many.

    It is opt_einsum's, unless there is a better one: its count differs a little from ours.
    """
    labels = tuple(factor.labels for factor in chain.factors)
    sizes: dict[str, int] = {}
    for factor in chain.factors:
        sizes |= graph[factor.name].sizes_by(factor.labels)
    steps = path_of(labels, chain.output, sizes)
    count = len(labels)
    if count > MOST_OPERANDS:
        return steps
    contraction = Contraction(labels, chain.output, sizes, paired=False)
    if contraction.work(order_of(steps, count)) == contraction.least:
        return steps
    return steps_of(contraction.cheapest, count)


def _contract(vertex: Vertex, chain: Chain, steps: Iterable[Step], into: Graph) -> list[str]:
    """Join factors step by step, and say which vertices that made, in order."""
    made: list[str] = []
    queue = list(chain.factors)
    for step in steps:
        picked = [queue[k] for k in step]
        queue = [factor for k, factor in enumerate(queue) if k not in step]
        needed = {*chain.output, *(label for factor in queue for label in factor.labels)}
        seen = dict.fromkeys(label for factor in picked for label in factor.labels)
        labels = tuple(label for label in seen if label in needed) if queue else chain.output
        is_whole = not queue and not _is_narrow(vertex)
        name = vertex.name if is_whole else into.fresh(f"{vertex.name}_1")
        operands = [(factor.name, factor.labels) for factor in picked]
        value = join_factors(picked, chain.join)
        if not is_whole:
            value = _at_least(value, picked, chain.join, vertex, into)
        into.add_einsum(labels, operands, value, chain.agg, name, vertex.sizes)
        queue.append(ChainFactor(name, labels))
        made.append(name)
    if _is_narrow(vertex):
        [wide] = queue
        rounded = call(vertex.dtype.name, Arg(0))
        into.add_einsum(chain.output, [(wide.name, wide.labels)], rounded, name=vertex.name)
    return made


def _is_narrow(vertex: Vertex) -> bool:
    """Whether partial results may leave the range of the whole one: float16 ends at 65504."""
    return vertex.dtype == "float16"


def _at_least(
    value: Expr, factors: Sequence[ChainFactor], join: str, vertex: Vertex, graph: Graph
) -> Expr:
    """A partial result in the type of the whole one, which a part of the factors may not reach."""
    types = [graph[factor.name].dtype for factor in factors]
    reached = type_of(value, types, graph.scalars)
    wanted = promote(reached, FLOAT32 if _is_narrow(vertex) else vertex.dtype)
    if wanted == reached or kind(reached) is Kind.BOOL:
        return value
    to = concrete(wanted).name
    if reached in LOW_PRECISION:
        return call(to, value)  # which matrix products take, and compute in float32 anyway
    # Before they are joined: what is too large for the narrow type would be lost by then.
    return join_factors([replace(factor, map=call(to, factor.map)) for factor in factors], join)


def _split(vertex: Vertex, op: EinSum, into: Graph) -> None:
    """Give parts of a join vertices of their own until two inputs are left or none can be split."""
    operands: Operands = list(zip(vertex.inputs, op.inputs, strict=True))
    limit = max(vertex.elements, *(into[name].elements for name, _ in operands))
    join = op.join
    while len(operands) > 2:
        separable = _separable(join, operands, limit, into)
        if separable is None:
            break
        part, labels = separable
        used = used_args(part)
        value = replace_args(part, {k: Arg(place) for place, k in enumerate(used)})
        name = into.fresh(f"{vertex.name}_1")
        into.add_einsum(labels, [operands[k] for k in used], value, name=name)
        join = substitute(join, {part: Arg(len(operands))}.get)
        operands.append((name, labels))
        kept = used_args(join)
        join = replace_args(join, {k: Arg(place) for place, k in enumerate(kept)})
        operands = [operands[k] for k in kept]
    into.add_einsum(op.output, operands, join, op.agg, vertex.name, vertex.sizes)


def _separable(
    join: Expr, operands: Operands, limit: int, graph: Graph
) -> tuple[Expr, Labels] | None:
    """The smallest part of a join that reads some inputs, two or more, all by itself."""
    total = Counter(leaves(join))
    best: tuple[int, Expr, Labels] | None = None
    for part in calls_of(values(join)):
        uses = used_args(part)
        own = Counter(leaves(part))
        if not 2 <= len(uses) < len(operands) or any(own[Arg(k)] < total[Arg(k)] for k in uses):
            continue
        sizes: dict[str, int] = {}
        for name, labels in (operands[k] for k in uses):
            sizes |= graph[name].sizes_by(labels)
        elements = prod(sizes.values())
        if elements <= limit and (best is None or elements < best[0]):
            best = (elements, part, tuple(sizes))
    return None if best is None else best[1:]


# Vertices as chains of joins that distribute over their aggregation

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
    if any(len(used_args(part)) > 1 for part in parts):
        return None
    types = [graph[name].dtype for name in vertex.inputs]
    whole = type_of(op.join, types, graph.scalars)
    # In `Y * Z * X` two narrow numbers meet first, and may wrap around or overflow as they do.
    if any(type_of(link, types, graph.scalars) != whole for link in _links(op.join)):
        return None
    maps: dict[int, Expr] = {}
    for part in sorted(parts, key=lambda part: not used_args(part)):
        # A literal or run-time scalar rides along with the first tensor.
        [k] = used_args(part) or (0,)
        mapped = replace_args(part, {k: Arg(0)})
        maps[k] = call(join, maps[k], mapped) if k in maps else mapped
    operands = zip(vertex.inputs, op.inputs, strict=True)
    factors = (ChainFactor(*operand, maps[k]) for k, operand in enumerate(operands))
    return Chain(join, op.agg, tuple(factors), op.output)


def join_factors(factors: Sequence[ChainFactor], op: str) -> Expr:
    """The join of factors, the first one being input 0."""
    first, *rest = (replace_args(factor.map, {0: Arg(k)}) for k, factor in enumerate(factors))
    for value in rest:
        first = call(op, first, value)
    return first


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

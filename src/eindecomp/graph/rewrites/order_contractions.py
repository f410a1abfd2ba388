"""Turning n-ary EinSums into binary ones, in the order that costs the least arithmetic.

Where ⊗ distributes over ⊕ (products under a sum, sums under a max, …) labels are aggregated as soon
as nothing else needs them, along the path that opt_einsum finds. Any other join with an aggregation
has parts split off into element-wise vertices, as long as a part is no larger than the tensors
around it; what is left stays one n-ary vertex, as element-wise joins always do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from eindecomp.graph.rewrites.rebuild import copy_vertex, empty_like
from eindecomp.lang.dtypes import FLOAT32, LOW_PRECISION, Kind, concrete, kind, promote
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.monoid import Monoid, distributes
from eindecomp.lang.scalar import Arg, Call, Expr, Tuple, call, leaves, replace_args, used_args
from eindecomp.lang.scalar_types import type_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex

Operands = list[tuple[str, Labels]]


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
    ordered = empty_like(graph)
    for vertex in graph.vertices.values():
        match vertex.op:
            case EinSum(agg=Monoid() as agg) as op if len(used_args(op.join)) == len(op.inputs) > 2:
                _binarise(vertex, op, agg, ordered)
            case _:
                copy_vertex(vertex, ordered)
    ordered.output(*(vertex.name for vertex in graph.outputs))
    return ordered


def _binarise(vertex: Vertex, op: EinSum, agg: Monoid, into: Graph) -> None:
    if isinstance(op.join, Call) and distributes(op.join.op, agg):
        parts = list(_chain(op.join, op.join.op))
        if all(len(used_args(part)) <= 1 for part in parts) and _is_of_one_type(vertex, op, into):
            _contract(vertex, op, parts, op.join.op, into)
            return
    _split(vertex, op, into)


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


def _chain(expr: Expr, op: str) -> Iterator[Expr]:
    """The operands of a chain of one binary function, from left to right."""
    if isinstance(expr, Call) and expr.op == op:
        for arg in expr.args:
            yield from _chain(arg, op)
    else:
        yield expr


@dataclass(frozen=True, slots=True)
class _Factor:
    """A tensor in a chain of joins, and the map (of input 0) that is still to be applied to it."""

    name: str
    labels: Labels
    map: Expr


def _contract(vertex: Vertex, op: EinSum, parts: list[Expr], join: str, into: Graph) -> None:
    maps: dict[int, Expr] = {}
    for part in sorted(parts, key=lambda part: not used_args(part)):
        # A literal or run-time scalar rides along with the first tensor.
        [k] = used_args(part) or (0,)
        mapped = replace_args(part, {k: Arg(0)})
        maps[k] = call(join, maps[k], mapped) if k in maps else mapped
    queue = [
        _Factor(name, labels, maps[k])
        for k, (name, labels) in enumerate(zip(vertex.inputs, op.inputs, strict=True))
    ]
    for step in _path(queue, op.output, into):
        picked = [queue[k] for k in step]
        queue = [factor for k, factor in enumerate(queue) if k not in step]
        needed = {*op.output, *(label for factor in queue for label in factor.labels)}
        seen = dict.fromkeys(label for factor in picked for label in factor.labels)
        labels = tuple(label for label in seen if label in needed) if queue else op.output
        is_whole = not queue and not _is_narrow(vertex)
        name = vertex.name if is_whole else into.fresh(f"{vertex.name}_1")
        operands = [(factor.name, factor.labels) for factor in picked]
        value = _join(picked, join)
        if not is_whole:
            value = _at_least(value, picked, join, vertex, into)
        made = into.add_einsum(labels, operands, value, op.agg, name, vertex.sizes)
        queue.append(_Factor(made.name, labels, Arg(0)))
    if _is_narrow(vertex):
        [wide] = queue
        rounded = call(vertex.dtype.name, Arg(0))
        into.add_einsum(op.output, [(wide.name, wide.labels)], rounded, name=vertex.name)


def _is_narrow(vertex: Vertex) -> bool:
    """Whether partial results may leave the range of the whole one: float16 ends at 65504."""
    return vertex.dtype == "float16"


def _join(factors: Sequence[_Factor], op: str) -> Expr:
    first, *rest = (replace_args(factor.map, {0: Arg(k)}) for k, factor in enumerate(factors))
    for value in rest:
        first = call(op, first, value)
    return first


def _at_least(
    value: Expr, factors: Sequence[_Factor], join: str, vertex: Vertex, graph: Graph
) -> Expr:
    """A partial result in the type of the whole one, which a part of the factors may not reach."""
    types = [graph[factor.name].dtype for factor in factors]
    found = type_of(value, types, graph.scalars)
    wanted = promote(found, FLOAT32 if _is_narrow(vertex) else vertex.dtype)
    if wanted == found or kind(found) is Kind.BOOL:
        return value
    to = concrete(wanted).name
    if found in LOW_PRECISION:
        return call(to, value)  # which matrix products take, and compute in float32 anyway
    # Before they are joined: what is too large for the narrow type would be lost by then.
    return _join([replace(factor, map=call(to, factor.map)) for factor in factors], join)


def _path(factors: Sequence[_Factor], output: Labels, graph: Graph) -> list[tuple[int, ...]]:
    """The order of pairwise contractions, as positions in a list that each step shortens."""
    import opt_einsum  # here, because few graphs have an n-ary sum and importing it takes time

    symbols: dict[str, str] = {}
    for factor in factors:
        for label in factor.labels:
            symbols.setdefault(label, opt_einsum.get_symbol(len(symbols)))
    terms = ",".join("".join(symbols[label] for label in factor.labels) for factor in factors)
    result = "".join(symbols[label] for label in output if label in symbols)
    shapes = [graph[factor.name].shape for factor in factors]
    path, _ = opt_einsum.contract_path(f"{terms}->{result}", *shapes, shapes=True, optimize="auto")
    return [tuple(step) for step in path]


def _split(vertex: Vertex, op: EinSum, into: Graph) -> None:
    """Give parts of a join vertices of their own until two inputs are left or none can be split."""
    operands: Operands = list(zip(vertex.inputs, op.inputs, strict=True))
    limit = max(vertex.elements, *(into[name].elements for name, _ in operands))
    join = op.join
    while len(operands) > 2:
        found = _separable(join, operands, limit, into)
        if found is None:
            break
        part, labels = found
        used = used_args(part)
        value = replace_args(part, {k: Arg(place) for place, k in enumerate(used)})
        name = into.fresh(f"{vertex.name}_1")
        into.add_einsum(labels, [operands[k] for k in used], value, name=name)
        join = _replace(join, part, Arg(len(operands)))
        operands.append((name, labels))
        kept = used_args(join)
        join = replace_args(join, {k: Arg(place) for place, k in enumerate(kept)})
        operands = [operands[k] for k in kept]
    into.add_einsum(op.output, operands, join, op.agg, vertex.name, vertex.sizes)


def _separable(
    join: Expr, operands: Operands, limit: int, graph: Graph
) -> tuple[Expr, Labels] | None:
    """The smallest part of a join that reads some inputs, two or more, all by itself."""
    total = _uses(join)
    best: tuple[int, Expr, Labels] | None = None
    for part in _calls(join):
        uses = _uses(part)
        if not 2 <= len(uses) < len(operands) or any(total[k] != n for k, n in uses.items()):
            continue
        sizes = {
            label: size
            for k in uses
            for label, size in graph[operands[k][0]].sizes_by(operands[k][1]).items()
        }
        elements = prod(sizes.values())
        if elements <= limit and (best is None or elements < best[0]):
            best = (elements, part, tuple(sizes))
    return None if best is None else best[1:]


def _uses(expr: Expr) -> dict[int, int]:
    """How often each input is read."""
    count: dict[int, int] = {}
    for leaf in leaves(expr):
        if isinstance(leaf, Arg):
            count[leaf.index] = count.get(leaf.index, 0) + 1
    return count


def _calls(expr: Expr) -> Iterator[Call]:
    """All function calls of an expression, outer ones first."""
    match expr:
        case Call(args=args):
            yield expr
            for arg in args:
                yield from _calls(arg)
        case Tuple(items):
            for item in items:
                yield from _calls(item)
        case _:
            pass


def _replace(expr: Expr, part: Expr, by: Expr) -> Expr:
    if expr == part:
        return by
    match expr:
        case Call(op, args):
            return Call(op, tuple(_replace(arg, part, by) for arg in args))
        case Tuple(items):
            return Tuple(tuple(_replace(item, part, by) for item in items))
        case _:
            return expr

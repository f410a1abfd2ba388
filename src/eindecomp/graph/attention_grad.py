"""The gradient of softmax(Q·K)·V as a whole: nothing between Q, K and V is kept for it.

Weights P are computed again from queries and keys, which takes a product. With the adjoint G of the
result O, and D = ΣG·O for each query, the adjoint of the scores is P·(G·V - D). That of the maximum
that is subtracted from scores is 0, as softmax does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from math import inf
from typing import NamedTuple

from eindecomp.graph.graph import Graph
from eindecomp.graph.patterns.attention import Attention, KeyPart, find_attention
from eindecomp.graph.patterns.terms import TensorExpr, TensorRead
from eindecomp.lang.differentiate import pullback
from eindecomp.lang.dtypes import LOW_PRECISION, Kind, kind
from eindecomp.lang.einsum import Labels, Operand, Operands, product
from eindecomp.lang.scalar import Arg, Expr, call, replace_args
from eindecomp.lang.simplify import simplify


def taken_whole(graph: Graph, wanted: Set[str]) -> dict[str, Attention]:
    """The attentions of a graph whose gradient is taken as a whole, by their results."""
    alone = (one for one in find_attention(graph) if len(one.parts) == 1)
    return {one.result: one for one in alone if wanted.isdisjoint({*one.replaces} - {one.result})}


class Adjoint(NamedTuple):
    """What a tensor gets: a function of operands, summed over all labels that it does not have."""

    read: TensorRead
    operands: Operands
    value: Expr


def adjoints_of(graph: Graph, one: Attention, adjoint: str) -> list[Adjoint]:
    """What queries, keys, values and the operands of the bias get.

    All that is computed for that is added to the graph.
    """
    [part] = one.parts
    rows = (*one.batch, *one.groups, *one.queries)
    labels = (*rows, part.key)
    q, k, v = ((each.name, each.labels) for each in (one.q, part.k, part.v))
    result, given = (one.result, one.output.labels), (adjoint, one.output.labels)

    def add(what: str, labels: Labels, operands: Operands, join: Expr, agg: str = "sum") -> Operand:
        name = graph.fresh(f"grad_{one.result}_{what}")
        return graph.add_einsum(labels, operands, join, agg, name).name, labels

    def weight(exponent: Expr) -> Expr:
        return call("exp", call("sub", exponent, Arg(1)))

    # The same product as that of the forward pass would be merged with it, and kept.
    made = (graph[name].inputs for name in one.replaces)
    order = next(own for own in made if one.q.name in own and part.k.name in own)
    is_key_first = order.index(part.k.name) < order.index(one.q.name)
    scores = add("scores", labels, [q, k] if is_key_first else [k, q], product(2))
    wide = "float32" if one.dtype in LOW_PRECISION else one.dtype.name
    narrow = graph[scores[0]].dtype.name
    most = add("most", rows, *_of_scores(part, [scores], lambda x: x, -inf), agg="max")
    operands, join = _of_scores(part, [scores, most], weight, 0)
    total = add("total", rows, operands, call(wide, join))
    operands, join = _of_scores(part, [scores, most, total], weight, 0)
    weights = add("weights", labels, operands, call(narrow, call("div", join, Arg(2))))
    mean = add("mean", rows, [given, result], call("mul", call(wide, Arg(0)), call(wide, Arg(1))))
    passed = add("passed", labels, [given, v], product(2))
    slope = call("mul", Arg(0), call("sub", Arg(1), Arg(2)))
    back = add("back", labels, [weights, passed, mean], call(narrow, slope))
    scaled = product(2) if part.scale == 1 else call("mul", product(2), part.scale)
    adjoints = [
        Adjoint(one.q, [back, k], scaled),
        Adjoint(part.k, [back, q], scaled),
        Adjoint(part.v, [weights, given], product(2)),
    ]
    return adjoints if part.bias is None else [*adjoints, *_of_bias(graph, part.bias, back)]


def _of_bias(graph: Graph, bias: TensorExpr, back: Operand) -> Iterator[Adjoint]:
    """What the operands of a bias get of the adjoint of the scores."""
    operands = [back, *((read.name, read.labels) for read in bias.reads)]
    types = tuple(graph[name].dtype for name, _ in operands)
    join = replace_args(bias.expr, [Arg(1 + k) for k in range(len(bias.reads))])
    for k, read in enumerate(bias.reads):
        value = pullback(join, 1 + k, Arg(0), types, graph.scalars)
        if value is not None and kind(types[1 + k]) >= Kind.FLOAT:
            yield Adjoint(read, operands, simplify(value, types, graph.scalars))


def _of_scores(
    part: KeyPart, operands: Operands, value: Callable[[Expr], Expr], other: float
) -> tuple[Operands, Expr]:
    """A function of scores, scaled and with their bias; `other` where the mask hides a key."""
    every = [*operands]

    def placed(condition: TensorExpr) -> Expr:
        start = len(every)
        every.extend((read.name, read.labels) for read in condition.reads)
        return replace_args(condition.expr, [Arg(start + k) for k in range(len(condition.reads))])

    exponent: Expr = Arg(0) if part.scale == 1 else call("mul", Arg(0), part.scale)
    if part.bias is not None:
        exponent = call("add", exponent, placed(part.bias))
    join = value(exponent)
    if part.mask is not None:
        join = call("where", placed(part.mask.value), join, other)
    return every, join
